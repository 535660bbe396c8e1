# prints: inside
from e2b import Sandbox

with Sandbox.create() as sandbox:
    print(sandbox.commands.run('echo inside').stdout)
