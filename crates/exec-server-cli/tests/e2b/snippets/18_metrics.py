# prints: True
from e2b import Sandbox

sandbox = Sandbox.create()

metrics = sandbox.get_metrics()
print(metrics[0].mem_total > 0)

sandbox.kill()
