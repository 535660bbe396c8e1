# prints: wrote to file my-folder/my-file
from e2b import Sandbox, FilesystemEventType

sandbox = Sandbox.create()
dirname = '/home/user'
sandbox.files.make_dir(f"{dirname}/my-folder")

# Watch directory for changes
handle = sandbox.files.watch_dir(dirname, recursive=True)
# Trigger file write event
sandbox.files.write(f"{dirname}/my-folder/my-file", "hello")

# Retrieve the latest new events since the last `get_new_events()` call
events = handle.get_new_events()
for event in events:
    print(event)
    if event.type == FilesystemEventType.WRITE:
        print(f"wrote to file {event.name}")

sandbox.kill()
