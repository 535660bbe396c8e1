# prints: Hello from E2B!
from e2b import Sandbox

sandbox = Sandbox.create()
result = sandbox.commands.run('echo "Hello from E2B!"')
print(result.stdout)

sandbox.kill()
