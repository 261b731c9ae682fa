// A classic script in the head: the chosen theme is set before anything is painted, so nothing flashes.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("operant-theme");
  } catch {
    // Storage may be forbidden; the system's theme then stands.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
