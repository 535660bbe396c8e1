# prints: running
from e2b import Sandbox

# Create sandbox with and keep it running for 60 seconds.
sandbox = Sandbox.create(timeout=60)

# Change the sandbox timeout to 30 seconds.
sandbox.set_timeout(30)

# Retrieve sandbox information.
info = sandbox.get_info()
print(info)
print(info.state.value)

# Shutdown the sandbox immediately.
sandbox.kill()
