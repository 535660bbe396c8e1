# The official Python SDK as the client: in both modes, a command, a session that goes on, a failure, a log.
# Usage: client.py EXEC_SERVER MODE, where MODE is `legacy` (initialize) or `2026-07-28`.
import sys

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
import os


async def main() -> None:
    program, mode = sys.argv[1:]
    server = StdioServerParameters(command=program, args=["mcp"], env=dict(os.environ))
    async with Client(stdio_client(server), mode=mode) as client:
        assert (client.protocol_version == "2026-07-28") == (mode != "legacy"), client.protocol_version
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"exec_command", "write_stdin", "wait_for", "read_output", "list_sessions", "kill_session"} <= set(tools)
        # An image comes without a structure: some clients would show that in its place.
        assert all(tool.annotations and (tool.output_schema or tool.name == "view_image") for tool in tools.values())

        done = await client.call_tool("exec_command", {"cmd": "echo hello; exit 3", "login": False, "yield_time_ms": 30000})
        assert done.structured_content["output"] == "hello\n", done
        assert done.structured_content["exit_code"] == 3, done
        assert "Process exited with code 3" in done.content[0].text, done

        started = await client.call_tool("exec_command", {"cmd": "cat", "stdin": True, "login": False, "yield_time_ms": 250})
        session = started.structured_content["session_id"]
        assert started.structured_content["status"] == "running", started
        await client.call_tool("write_stdin", {"session_id": session, "chars": "typed\n"})
        ended = await client.call_tool(
            "write_stdin", {"session_id": session, "close_stdin": True, "yield_time_ms": 30000}
        )
        assert ended.structured_content["exit_code"] == 0, ended
        log = await client.read_resource(f"exec://session/{session}/log")
        assert log.contents[0].text == "typed\n", log

        failed = await client.call_tool("write_stdin", {"session_id": 1, "chars": "x"})
        assert failed.is_error and "unknown session id 1" in failed.content[0].text, failed
    print("ok")


anyio.run(main)
