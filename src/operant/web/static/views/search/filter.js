// The filter of the job table: `lr < 1e-3 and not status == "ERROR"`, or plain words. Parsed, never evaluated.

/**
 * @typedef {{get: (name: string) => any, words: () => string}} Row
 * @typedef {(row: Row) => boolean} Test
 * @typedef {{kind: "word" | "text" | "sign", text: string, at: number}} Token
 */

const SIGNS = ["<=", ">=", "==", "!=", "=", "<", ">", "(", ")"];
const COMPARE = new Set(["<", "<=", ">", ">=", "==", "=", "!="]);

/** @param {string} text @returns {Token[]} */
function tokens(text) {
  const found = [];
  let at = 0;
  while (at < text.length) {
    const sign = SIGNS.find((one) => text.startsWith(one, at));
    const letter = text[at];
    if (/\s/.test(letter)) at += 1;
    else if (sign && !(sign === "(" && found.length && /[\w.-]/.test(text[at - 1] ?? ""))) {
      found.push({ kind: /** @type {const} */ ("sign"), text: sign, at });
      at += sign.length;
    } else if (letter === '"' || letter === "'" || letter === "`") {
      const end = text.indexOf(letter, at + 1);
      if (end < 0) throw new Error(`The quote at character ${at + 1} is not closed.`);
      found.push({ kind: /** @type {"word" | "text"} */ (letter === "`" ? "word" : "text"), text: text.slice(at + 1, end), at });
      at = end + 1;
    } else {
      // A value inside a file is called `config(epochs)`: a bracket right after a letter belongs to the name.
      const [word] = /** @type {RegExpMatchArray} */ (text.slice(at).match(/^(?:[^\s<>=!()"'`]+(?:\([^()]*\))?|!)+/) ?? [letter]);
      found.push({ kind: /** @type {const} */ ("word"), text: word, at });
      at += word.length;
    }
  }
  return found;
}

/** @param {string} text @returns {Test} throws an Error with a sentence where the text is no filter */
export function parseFilter(text) {
  const all = tokens(text);
  let next = 0;
  const peek = (/** @type {string} */ word) => all[next]?.kind !== "text" && all[next]?.text.toLowerCase() === word;

  /** @returns {Test} */
  function either() {
    let left = both();
    while (peek("or")) {
      next += 1;
      const [one, other] = [left, both()];
      left = (row) => one(row) || other(row);
    }
    return left;
  }

  /** Words beside each other must all be there. @returns {Test} */
  function both() {
    let left = one();
    while (next < all.length && !peek("or") && !peek(")")) {
      if (peek("and")) next += 1;
      const [first, second] = [left, one()];
      left = (row) => first(row) && second(row);
    }
    return left;
  }

  /** @returns {Test} */
  function one() {
    const token = all[next];
    if (!token) throw new Error("The filter ends where a comparison or a word should be.");
    if (peek("not")) {
      next += 1;
      const test = one();
      return (row) => !test(row);
    }
    if (token.text === "(" && token.kind === "sign") {
      next += 1;
      const test = either();
      if (!peek(")")) throw new Error(`The bracket at character ${token.at + 1} is not closed.`);
      next += 1;
      return test;
    }
    if (token.kind === "sign") throw new Error(`“${token.text}” at character ${token.at + 1} has no name before it.`);
    next += 1;
    const sign = all[next];
    if (sign?.kind === "sign" && COMPARE.has(sign.text)) {
      next += 1;
      const value = all[next];
      if (!value || value.kind === "sign") throw new Error(`After “${token.text} ${sign.text}” a value should follow.`);
      next += 1;
      return comparison(token.text, sign.text, value);
    }
    const wanted = token.text.toLowerCase();
    return (row) => row.words().includes(wanted);
  }

  const test = either();
  if (next < all.length) throw new Error(`“${all[next].text}” at character ${all[next].at + 1} does not belong there.`);
  return test;
}

/** @param {string} name @param {string} sign @param {Token} value @returns {Test} */
function comparison(name, sign, value) {
  const wanted = value.kind === "word" && value.text !== "" && !Number.isNaN(Number(value.text)) ? Number(value.text) : value.text;
  return (row) => {
    const found = row.get(name);
    if (sign === "=" || sign === "==") return same(found, wanted);
    if (sign === "!=") return !same(found, wanted);
    if (typeof found !== "number" || typeof wanted !== "number") return false;
    return { "<": found < wanted, "<=": found <= wanted, ">": found > wanted, ">=": found >= wanted }[sign] ?? false;
  };
}

function same(/** @type {any} */ found, /** @type {string | number} */ wanted) {
  if (typeof found === "number" && typeof wanted === "number") return found === wanted;
  if (found === null || found === undefined) return wanted === "none";
  return (typeof found === "string" ? found : JSON.stringify(found)).toLowerCase() === String(wanted).toLowerCase();
}
