# prints: total 0
from e2b import Sandbox

sandbox = Sandbox.create()

result = sandbox.commands.run('ls -l')
print(result)
print(result.stdout)

sandbox.kill()
