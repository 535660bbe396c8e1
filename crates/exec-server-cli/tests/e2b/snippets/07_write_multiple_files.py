# prints: another file content
from e2b import Sandbox

sandbox = Sandbox.create()

sandbox.files.write_files([
    { "path": "path/to/a", "data": "file content" },
    { "path": "another/path/to/b", "data": "another file content" }
])
print(sandbox.files.read("another/path/to/b"))

sandbox.kill()
