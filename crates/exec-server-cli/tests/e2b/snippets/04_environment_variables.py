# prints: my_value
# prints: 123
from e2b import Sandbox

sandbox = Sandbox.create(
    envs={
        'MY_VAR': 'my_value',
    },
)
print(sandbox.commands.run('echo $MY_VAR').stdout)
result = sandbox.commands.run(
    'echo $MY_VAR',
    envs={
        'MY_VAR': '123',
    },
)
print(result.stdout)

sandbox.kill()
