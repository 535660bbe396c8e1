# prints: file content
from e2b import Sandbox

sandbox = Sandbox.create()
sandbox.files.write('path/to/file', 'file content')
file_content = sandbox.files.read('path/to/file')
print(file_content)

sandbox.kill()
