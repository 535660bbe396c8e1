# The official Python SDK as a client that asks its user: in both modes, a yes, a no, and a client that cannot ask.
# Usage: approval.py EXEC_SERVER MODE FOLDER, where MODE is `legacy` (initialize) or `2026-07-28`.
import os
import sys
from pathlib import Path

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.types import ElicitResult


async def main() -> None:
    program, mode, folder = sys.argv[1:]
    arguments = ["mcp", "--sandbox", "workspace-write", "--ask", "outside-sandbox"]
    server = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
    for action in ["accept", "decline", "cancel", None]:
        file = Path(folder, f"{mode}-{action}")
        asked = []

        async def ask(context, params):
            assert not file.exists(), "nothing runs before the answer"
            asked.append(params.message)
            return ElicitResult(action=action, content={"approve": True} if action == "accept" else None)

        call = {"cmd": f"touch {file}", "outside_sandbox": True, "justification": "a test", "login": False}
        async with Client(stdio_client(server), mode=mode, elicitation_callback=ask if action else None) as client:
            done = await client.call_tool("exec_command", {**call, "yield_time_ms": 30000})
        assert len(asked) == (1 if action else 0), asked
        assert all(f"touch {file}" in message and "says the agent:\n    a test" in message for message in asked), asked
        assert file.exists() == (action == "accept"), done
        assert done.is_error == (action != "accept"), done
    print("ok")


anyio.run(main)
