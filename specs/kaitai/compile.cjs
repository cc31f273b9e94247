// node compile.cjs LANGUAGE GRAMMAR: the parser in that language, on standard output.
// The compiler's package for npm is a library without a command; this is the command.
"use strict";

const { readFileSync } = require("node:fs");
const { parse } = require("yaml");
const compiler = require("kaitai-struct-compiler");

const [language, grammar] = process.argv.slice(2);

compiler.compile(language, parse(readFileSync(grammar, "utf8")), null, false).then(
  (made) => process.stdout.write(Object.values(made).join("\n")),
  (error) => {
    console.error(String(error));
    process.exitCode = 1;
  },
);
