// Light, dark, or as the machine is set.

const KEY = "magnetar.theme";
const ORDER = ["auto", "light", "dark"];

function apply(theme, button) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  button.textContent = `Theme: ${theme}`;
}

export function switchTheme(button) {
  const known = localStorage.getItem(KEY);
  apply(ORDER.includes(known) ? known : "auto", button);
  button.onclick = () => {
    const now = localStorage.getItem(KEY) || "auto";
    const next = ORDER[(ORDER.indexOf(now) + 1) % ORDER.length];
    localStorage.setItem(KEY, next);
    apply(next, button);
  };
}
