"use strict";
(function () {
  const held = document.getElementById("plots");
  const items = held ? JSON.parse(held.textContent) : {};
  const views = [];

  function draw(name) {
    const item = items[name];
    delete items[name];
    if (item) {
      Bokeh.embed.embed_item(item, name).then((view) => views.push(view));
    }
  }

  // What lies in a closed part has no width yet: it is drawn when the part is opened.
  function drawVisible() {
    for (const name of Object.keys(items)) {
      const place = document.getElementById(name);
      const closed = place.closest("details:not([open])");
      if (!closed) {
        draw(name);
      }
    }
  }

  // Text and lines take their colours from style sheets whenever a plot is painted.
  function repaint() {
    for (const held of views) {
      for (const view of held.roots ? held.roots : [held]) {
        if (view.canvas_view) {
          const { ctx } = view.canvas_view.primary;
          ctx.clearRect(0, 0, ctx.canvas.width, ctx.canvas.height); // or a line of the old ground stays at its edges
          view.request_repaint();
        }
      }
    }
  }

  function openTarget() {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    const part = target && (target.querySelector(":scope > details") || target.closest("details"));
    if (part) {
      part.open = true;
      target.scrollIntoView();
    }
  }

  // The contents stand open beside the page where it is wide, and folded above it elsewhere.
  const contents = document.querySelector("nav details");
  const wide = window.matchMedia("(min-width: 70rem)");
  function placeContents() {
    contents.open = wide.matches;
  }
  contents.addEventListener("click", (event) => {
    if (event.target.closest("a") && !wide.matches) {
      contents.open = false;
    }
  });

  // The section that is being read: the last one that begins above the middle of the window.
  const links = [...contents.querySelectorAll("a")];
  function markSection() {
    let current = links[0];
    for (const link of links) {
      if (document.getElementById(link.hash.slice(1)).getBoundingClientRect().top < window.innerHeight / 2) {
        current = link;
      }
    }
    for (const link of links) {
      if (link === current) {
        link.setAttribute("aria-current", "true");
      } else {
        link.removeAttribute("aria-current");
      }
    }
  }

  for (const part of document.querySelectorAll("details")) {
    part.addEventListener("toggle", drawVisible);
  }
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("main details:not([open])")];
    opened.forEach((part) => { part.open = true; });
  });
  window.addEventListener("afterprint", () => {
    opened.forEach((part) => { part.open = false; });
  });
  window.addEventListener("hashchange", openTarget);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  wide.addEventListener("change", placeContents);
  document.addEventListener("scroll", markSection, { passive: true });
  placeContents();
  markSection();
  openTarget();
  drawVisible();
})();
