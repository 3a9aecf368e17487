/** JSON merge patches (RFC 7396). */

type Json = unknown;

const isObject = (value: Json): value is Record<string, Json> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function equal(a: Json, b: Json): boolean {
  if (a === b) return true;
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((item, i) => equal(item, b[i]));
  if (isObject(a) && isObject(b)) {
    const names = new Set([...Object.keys(a), ...Object.keys(b)]);
    return [...names].every((name) => name in a && name in b && equal(a[name], b[name]));
  }
  return false;
}

/** The patch that makes `to` of `from`; undefined if nothing changed. */
export function mergePatch(from: Json, to: Json): Json | undefined {
  if (equal(from, to)) return undefined;
  if (!isObject(from) || !isObject(to)) return to;
  const patch: Record<string, Json> = {};
  for (const name of Object.keys(from)) if (!(name in to)) patch[name] = null;
  for (const [name, value] of Object.entries(to)) {
    const change = name in from ? mergePatch(from[name], value) : value;
    if (change !== undefined) patch[name] = change;
  }
  return patch;
}
