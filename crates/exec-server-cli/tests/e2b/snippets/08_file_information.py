# prints: test_file.txt 13 -rw-r--r--
from e2b import Sandbox

sandbox = Sandbox.create()

# Create a new file
sandbox.files.write('test_file.txt', 'Hello, world!')

# Get information about the file
info = sandbox.files.get_info('test_file.txt')
print(info.name, info.size, info.permissions)

sandbox.kill()
