/* Alerts that one cause raises stand together: the one that speaks for them, then the others. */

/** The items in their order, but each that has a root (`rootOf(item)`, an item or nothing) right after that one; those
    that have are copies with `root`. */
export function underRoots(items, rootOf) {
  const under = new Map();
  const first = [];
  for (const item of items) {
    const root = rootOf(item);
    if (root && root !== item) under.set(root, [...(under.get(root) ?? []), { ...item, root }]);
    else first.push(item);
  }
  return first.flatMap((item) => [item, ...(under.get(item) ?? [])]);
}
