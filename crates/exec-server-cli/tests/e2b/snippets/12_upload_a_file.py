# prints: True
from e2b import Sandbox

sandbox = Sandbox.create()

# Read local file
with open(__file__, "rb") as file:
    # Upload file to sandbox
    sandbox.files.write("path/in/sandbox", file)
print(sandbox.files.read("path/in/sandbox") == open(__file__).read())

sandbox.kill()
