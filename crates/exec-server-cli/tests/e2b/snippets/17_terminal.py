# prints: 24 80
from e2b import PtySize, Sandbox

sandbox = Sandbox.create()

terminal = sandbox.pty.create(PtySize(cols=80, rows=24))
sandbox.pty.send_stdin(terminal.pid, b"stty size\n")
sandbox.pty.send_stdin(terminal.pid, b"exit\n")
terminal.wait(on_pty=lambda data: print(data.decode()))

sandbox.kill()
