# prints: same sandbox
from e2b import Sandbox

sandbox = Sandbox.create()
sandbox_id = sandbox.sandbox_id

# Connect to the sandbox
same_sandbox = Sandbox.connect(sandbox_id)
same_sandbox.files.write('note', 'same sandbox')
print(sandbox.files.read('note'))

sandbox.kill()
