// The official TypeScript SDK in one of its two lines. MODE is `v1` (@modelcontextprotocol/sdk, which knows only the handshake);
// of the second line (@modelcontextprotocol/client) `legacy` (the handshake), `auto` (it finds out) or `2026-07-28`.
import assert from "node:assert/strict";

/** A client that has connected to the program and its arguments, or to the URL, in `where`; `ask` answers questions to the user. */
export async function connect(mode, where, ask) {
  const sdk = mode === "v1" ? await firstLine() : await secondLine(mode);
  const capabilities = ask ? { elicitation: {} } : {};
  const client = new sdk.Client({ name: "test", version: "1" }, { ...sdk.options, capabilities });
  if (ask) {
    client.setRequestHandler(sdk.elicitation, (request) => ask(request.params));
  }
  await client.connect(
    where instanceof URL
      ? new sdk.StreamableHTTPClientTransport(where)
      : new sdk.StdioClientTransport({ command: where[0], args: where.slice(1), env: process.env }),
  );
  if (mode !== "v1") {
    assert.equal(client.getNegotiatedProtocolVersion(), mode === "legacy" ? "2025-11-25" : "2026-07-28");
  }
  return client;
}

async function firstLine() {
  return {
    ...(await import("@modelcontextprotocol/sdk/client/index.js")),
    ...(await import("@modelcontextprotocol/sdk/client/stdio.js")),
    ...(await import("@modelcontextprotocol/sdk/client/streamableHttp.js")),
    elicitation: (await import("@modelcontextprotocol/sdk/types.js")).ElicitRequestSchema,
  };
}

async function secondLine(mode) {
  return {
    ...(await import("@modelcontextprotocol/client")),
    ...(await import("@modelcontextprotocol/client/stdio")),
    elicitation: "elicitation/create",
    options: { versionNegotiation: { mode: mode === "2026-07-28" ? { pin: mode } : mode } },
  };
}
