// A page without anything to step through: light or dark.
"use strict";

const root = document.documentElement;
const turn = () => { root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark"; };
root.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
document.getElementById("theme").addEventListener("click", turn);
document.addEventListener("keydown", (event) => { if (event.key === "t" && !event.ctrlKey && !event.metaKey && !event.altKey) turn(); });
