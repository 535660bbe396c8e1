# prints: {'userId': '123'}
from e2b import Sandbox, SandboxQuery

sandbox = Sandbox.create(
    metadata={
        'userId': '123',
    },
)

# List running sandboxes and access metadata.
paginator = Sandbox.list(query=SandboxQuery(metadata={'userId': '123'}))
running_sandboxes = paginator.next_items()
print(running_sandboxes[0].metadata)

sandbox.kill()
