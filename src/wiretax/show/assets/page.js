(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.add("scripted");
  window.wiretaxViews = {};

  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const button = document.querySelector("button.theme");
  const name = () => { button.textContent = dark() ? "Light" : "Dark"; button.setAttribute("aria-pressed", String(dark())); };
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; name(); });
  name();

  const column = (c) => Array.isArray(c) ? c : c.at.map((k) => c.words[k]);
  const rows = (columns) => {
    const names = Object.keys(columns);
    const lists = names.map((n) => column(columns[n]));
    return lists[0].map((_, k) => Object.fromEntries(names.map((n, i) => [n, lists[i][k]])));
  };
  const unpack = (value) => {
    if (Array.isArray(value)) return value.map(unpack);
    if (value === null || typeof value !== "object") return value;
    const found = {};
    for (const [key, inner] of Object.entries(value))
      found[key] = key === "values" && inner !== null && inner.columns ? rows(inner.columns) : unpack(inner);
    return found;
  };

  // On a telephone a chart is drawn as wide as its card, charts side by side one below the other: letters keep their size.
  const NARROW = 620;
  const stacked = (spec, room) => {
    if (spec.hconcat) { spec.vconcat = spec.hconcat; delete spec.hconcat; }
    if (spec.concat) spec.columns = 1;
    for (const one of spec.vconcat || []) stacked(one, room);
    if (typeof spec.width === "number" && spec.width > room - 60) spec.width = room - 60;
  };
  const fitted = (spec, room, name) => {
    if (room >= NARROW) return spec;
    spec.config.legend = { ...spec.config.legend, columns: name === "step" ? 1 : room < 420 ? 2 : 3, layout: { top: { direction: "vertical" } } };
    if (spec.vconcat || spec.hconcat || spec.concat) stacked(spec, room);
    if (name === "planner") {  // its sentence, a line a figure
      Object.assign(spec.vconcat[0].mark, { lineBreak: ", " });
      spec.vconcat[0].height = 96;
    } else if (typeof spec.width === "number" && spec.width > room) {
      spec.width = room;
      spec.autosize = { type: "fit-x", contains: "padding" };
      spec.padding = spec.padding || { left: 5, right: 16, top: 5, bottom: 5 };  // half of the last label
    }
    return spec;
  };

  const inflate = async (text) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  const pause = () => new Promise((done) => setTimeout(done, 0));

  const draw = async () => {
    const script = document.createElement("script");
    script.textContent = await inflate(document.getElementById("vega").textContent.trim());
    document.head.append(script);
    for (const { name, spec } of JSON.parse(await inflate(document.getElementById("specs").textContent.trim()))) {
      await pause();
      const figure = document.getElementById(name).querySelector(".plot");
      const controls = document.getElementById(name).querySelector(".controls");
      // Errors only (level 1): a layer that has nothing to show for one choice of a menu is no trouble.
      const options = { logLevel: 1, actions: false, renderer: "svg", ast: true, bind: controls, tooltip: { theme: "custom" } };
      const result = await vegaEmbed(figure.querySelector(".live"), fitted(unpack(spec), figure.clientWidth, name), options);
      window.wiretaxViews[name] = result.view;
      figure.parentElement.classList.add("drawn");
      figure.classList.add("drawn");
      if (!controls.childElementCount) controls.remove();
    }
  };
  // Old browsers cannot inflate: they keep the still pictures, which say the same.
  const start = () => {
    if (!("DecompressionStream" in window)) { root.dataset.ready = "still"; return; }
    draw().then(() => { root.dataset.ready = "1"; }, (error) => { root.dataset.ready = "failed"; throw error; });
  };
  requestAnimationFrame(() => setTimeout(start, 0));
})();
