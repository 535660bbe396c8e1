# prints: b'file content'
import urllib.request

from e2b import Sandbox

# Start a secured sandbox (all operations must be authorized by default)
sandbox = Sandbox.create(timeout=300)
sandbox.files.write('demo.txt', 'file content')

# Create a pre-signed URL for file download with a 10 second expiration
signed_url = sandbox.download_url(path="demo.txt", user="user", use_signature_expiration=10_000)
print(urllib.request.urlopen(signed_url).read())

sandbox.kill()
