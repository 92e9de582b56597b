// The gallery's tables as one list: by text, family, claim and status. Needs no server and keeps nothing.
"use strict";

document$.subscribe(() => {
  const place = document.getElementById("gallery-filter");
  if (!place || place.childElementCount) return;
  const sections = [...place.closest("article").querySelectorAll("h2")].map((heading) => {
    const parts = [heading];
    for (let next = heading.nextElementSibling; next && next.tagName !== "H2"; next = next.nextElementSibling) parts.push(next);
    const tables = parts.map((part) => (part.tagName === "TABLE" ? part : part.querySelector("table"))).filter(Boolean);
    const name = heading.firstChild.textContent.trim();
    const rows = tables.flatMap((table) => [...table.tBodies[0].rows]).map((row) => {
      const cells = [...row.cells].map((cell) => cell.textContent.trim());
      return { row, text: cells.join(" ").toLowerCase().replaceAll("_", " "), family: name, claim: cells[3], status: cells[4] };
    });
    return { name, parts, rows };
  }).filter((section) => section.rows.length);
  const [known, ...families] = sections;
  const every = families.flatMap((section) => section.rows);

  const choice = (label, values) => {
    const select = document.createElement("select");
    select.setAttribute("aria-label", label);
    select.append(new Option(`any ${label}`, ""), ...values.map((value) => new Option(value, value)));
    return select;
  };
  const text = document.createElement("input");
  text.type = "search";
  text.placeholder = "Filter: tree, cache, Chen, entropy …";
  text.setAttribute("aria-label", "Filter by text");
  const family = choice("family", families.map((section) => section.name));
  const unique = (values) => [...new Set(values)].sort();
  const promises = unique(every.map((row) => row.claim.split(", ")[0]));
  const verdicts = unique(every.flatMap((row) => row.claim.split(", ").slice(1)));
  const claim = choice("claim", promises);
  const verdict = choice("verdict", verdicts);
  const status = choice("status", unique(every.map((row) => row.status)));
  const count = document.createElement("output");
  place.append(text, family, claim, verdict, status, count);

  const apply = () => {
    const words = text.value.toLowerCase().replaceAll("_", " ").split(/\s+/).filter(Boolean);
    const asked = words.length > 0 || [family, claim, verdict, status].some((select) => select.value);
    let found = 0;
    for (const section of sections) {
      let here = 0;
      for (const { row, text: said, family: name, claim: promise, status: known } of section.rows) {
        const [what, how] = promise.split(", ");
        const fits = words.every((word) => said.includes(word)) && (!family.value || family.value === name)
          && (!claim.value || claim.value === what) && (!verdict.value || verdict.value === how) && (!status.value || status.value === known);
        row.hidden = !fits;
        here += fits;
      }
      const shown = section === known ? !asked : here > 0;
      for (const part of section.parts) part.hidden = !shown;
      if (section !== known) found += here;
    }
    count.textContent = asked ? `${found} of ${every.length} algorithms` : `${every.length} algorithms`;
  };
  place.addEventListener("input", apply);
  apply();
});
