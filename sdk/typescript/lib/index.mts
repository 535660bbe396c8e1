// The same for `import`: one copy of every class, so that `instanceof` holds whichever way a program came in.

export * from "./index.js";
