// The texts of a page, shadow roots included, whose contrast with their ground is below 4.5, with that contrast.
() => {
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return text.startsWith("color(srgb") ? [255 * r, 255 * g, 255 * b, a] : [r, g, b, a];
  };
  const linear = (part) => part <= 10 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b) + 0.05;
  const over = (top, ground) => [0, 1, 2].map((at) => top[at] * top[3] + ground[at] * (1 - top[3]));
  const parent = (element) => element.assignedSlot || element.parentElement || element.getRootNode().host;
  const low = {};
  const look = (element) => {
    const field = element.localName === "input" && !element.value && element.placeholder;
    const own = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).join("").trim();
    const text = field || own;
    // ■ and its like are marks, an option is drawn by the browser.
    const drawn = element.checkVisibility() && !["style", "script", "option"].includes(element.localName);
    if (!drawn || !/\w/.test(text)) return;
    let ground = [255, 255, 255], opacity = 1;
    const grounds = [];
    for (let at = element; at; at = parent(at)) {
      const style = getComputedStyle(at);
      grounds.unshift(parse(style.backgroundColor));
      opacity *= Number(style.opacity);
    }
    for (const each of grounds) ground = over(each, ground);
    const style = getComputedStyle(element, field ? "::placeholder" : null), colour = parse(style.color);
    colour[3] *= opacity * (field ? Number(style.opacity) : 1);
    const [less, more] = [light(over(colour, ground)), light(ground)].sort((one, other) => one - other);
    if (more / less < 4.5) low[text] = more / less;
  };
  const walk = (root) => root.querySelectorAll("*").forEach((element) => {
    if (element.shadowRoot) walk(element.shadowRoot);
    look(element);
  });
  walk(document);
  return low;
}
