# prints: Hello from async
import asyncio

from e2b import AsyncSandbox


async def main():
    sandbox = await AsyncSandbox.create()
    result = await sandbox.commands.run('echo "Hello from async"')
    print(result.stdout)
    await sandbox.kill()


asyncio.run(main())
