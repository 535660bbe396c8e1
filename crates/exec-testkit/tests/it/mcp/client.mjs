// The official TypeScript SDK as the client: a command, a session that goes on, a failure, a log; on stdio or HTTP.
// Usage: node client.mjs MODE EXEC_SERVER, or a URL in place of EXEC_SERVER. For MODE see sdk.mjs.
import assert from "node:assert/strict";
import { connect } from "./sdk.mjs";

const [mode, where] = process.argv.slice(2);
const client = await connect(mode, where.startsWith("http:") ? new URL(where) : [where, "mcp"]);

const { tools } = await client.listTools();
// An image comes without a structure: some clients would show that in its place.
assert.ok(tools.every((tool) => tool.annotations && (tool.outputSchema || tool.name === "view_image")));
const call = (name, args) => client.callTool({ name, arguments: args });

// The SDK itself checks structured content against the output schemas.
const done = await call("exec_command", { cmd: "echo hello; exit 3", login: false, yield_time_ms: 30000 });
assert.equal(done.structuredContent.output, "hello\n");
assert.equal(done.structuredContent.exit_code, 3);

const started = await call("exec_command", { cmd: "cat", stdin: true, login: false, yield_time_ms: 250 });
const session = started.structuredContent.session_id;
await call("write_stdin", { session_id: session, chars: "typed\n" });
const waited = await call("write_stdin", { session_id: session, close_stdin: true, yield_time_ms: 30000 });
assert.equal(waited.structuredContent.exit_code, 0);
const log = await client.readResource({ uri: `exec://session/${session}/log` });
assert.equal(log.contents[0].text, "typed\n");
const listed = await call("list_sessions", {});
assert.ok(listed.structuredContent.sessions.some((listed) => listed.session_id === session));
const until = await call("wait_for", { session_id: session });
assert.equal(until.structuredContent.waited, "exited");
const killed = await call("kill_session", { session_id: session });
assert.equal(killed.structuredContent.left, 0);

const failed = await call("write_stdin", { session_id: 1, chars: "x" });
assert.ok(failed.isError && failed.content[0].text.includes("unknown session id 1"));
await client.close();
console.log("ok");
