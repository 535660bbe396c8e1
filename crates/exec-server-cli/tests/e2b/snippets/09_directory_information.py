# prints: FileType.DIR
from e2b import Sandbox

sandbox = Sandbox.create()

# Create a new directory
sandbox.files.make_dir('test_dir')

# Get information about the directory
info = sandbox.files.get_info('test_dir')
print(info.type)

sandbox.kill()
