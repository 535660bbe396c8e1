// The official TypeScript SDK as a client that asks its user: a yes, a no, and a client that cannot ask.
// Usage: node approval.mjs MODE EXEC_SERVER FOLDER. For MODE see sdk.mjs.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { connect } from "./sdk.mjs";

const [mode, program, folder] = process.argv.slice(2);
const server = [program, "mcp", "--sandbox", "workspace-write", "--ask", "outside-sandbox"];
for (const action of ["accept", "decline", "cancel", null]) {
  const file = join(folder, `${mode}-${action}`);
  const asked = [];
  const ask = ({ message }) => {
    assert.ok(!existsSync(file), "nothing runs before the answer");
    asked.push(message);
    return action === "accept" ? { action, content: { approve: true } } : { action };
  };
  const client = await connect(mode, server, action && ask);
  const command = { cmd: `touch ${file}`, outside_sandbox: true, justification: "a test", login: false };
  const done = await client.callTool({ name: "exec_command", arguments: { ...command, yield_time_ms: 30000 } });
  await client.close();
  assert.equal(asked.length, action ? 1 : 0);
  assert.ok(asked.every((message) => message.includes(`touch ${file}`) && message.includes("says the agent:\n    a test")));
  assert.equal(existsSync(file), action === "accept", JSON.stringify(done));
  assert.equal(Boolean(done.isError), action !== "accept", JSON.stringify(done));
}
console.log("ok");
