// Which text stands out too little from what is behind it (WCAG 2.2, AA): run in the page, answers what is faint.
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

function parts(color) {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = color;
  canvas.fillRect(0, 0, 1, 1);
  const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
  return [red, green, blue, alpha / 255];
}

function behind(element) {
  for (let each = element; each; each = each.parentElement) {
    const color = parts(getComputedStyle(each).backgroundColor);
    if (color[3] === 1) return color;
    if (color[3] > 0) throw new Error("what is half transparent is not computed");
  }
  return [255, 255, 255, 1];
}

function luminance([red, green, blue]) {
  const linear = [red, green, blue].map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}

const faint = [];
let looked = 0;
for (const element of document.body.querySelectorAll("*")) {
  const own = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  if (!own || !element.checkVisibility({ visibilityProperty: true })) continue;
  const style = getComputedStyle(element);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  const [lighter, darker] = [luminance(parts(style.color)), luminance(behind(element))].sort((a, b) => b - a);
  const ratio = (lighter + 0.05) / (darker + 0.05);
  looked += 1;
  if (ratio < (large ? 3 : 4.5)) faint.push(`${element.tagName} ${element.textContent.slice(0, 40)}: ${ratio.toFixed(2)}`);
}
return { looked, faint };
