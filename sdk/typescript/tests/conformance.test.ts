// The behaviours that every SDK must show: on this machine, and behind a proxy that cuts all the time.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Driver, behaviours } from "./conformance";

const WAYS = {
  local: () => new Driver(),
  remote: () => new Driver(process.env["EXEC_SERVER_TEST_URL"]!, process.env["EXEC_SERVER_TEST_CONTROL"]!),
};

test("there are enough behaviours", () => assert(behaviours().length >= 150));

for (const [way, driver] of Object.entries(WAYS)) {
  for (const [name, behaviour] of behaviours()) {
    // Everything is asynchronous here.
    if (!(behaviour.only ?? ["async"]).includes("async") || !(behaviour.where ?? [way]).includes(way)) continue;
    test(`${way}: ${name}`, { timeout: 100_000 }, () => driver().run(behaviour));
  }
}
