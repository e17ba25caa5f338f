
var unpacked = {};
function unpack(id) {
  "use strict";
  if (!unpacked[id]) {
    var packed = atob(document.getElementById(id).textContent), bytes = new Uint8Array(packed.length);
    for (var at = 0; at < packed.length; at++) { bytes[at] = packed.charCodeAt(at); }
    unpacked[id] = new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }
  return unpacked[id];
}
(function () {
  "use strict";
  var root = document.documentElement, each = function (what, todo) { document.querySelectorAll(what).forEach(todo); };
  function colour(name) { return getComputedStyle(root).getPropertyValue(name).trim(); }
  root.classList.add("scripted");

  // Figures: drawn already; plotly starts when a reader opens one.
  var block = document.getElementById("figures"), figures = block && JSON.parse(block.textContent), starting = null;
  function axis(own) {
    return Object.assign({}, own, {color: colour("--muted"), gridcolor: colour("--line"), linecolor: colour("--line")});
  }
  function themed(own) {
    var layout = Object.assign({}, own);
    layout.font = Object.assign({}, own.font, {color: colour("--text"), family: getComputedStyle(document.body).fontFamily});
    layout.xaxis = axis(own.xaxis);
    layout.yaxis = Object.assign(axis(own.yaxis), {color: colour("--text")});
    if (own.coloraxis) {
      layout.coloraxis = Object.assign({}, own.coloraxis, {
        colorscale: own.coloraxis.colorscale.map(function (stop) { return [stop[0], stop[1] === "#f2f2f2" ? colour("--even") : stop[1]]; })
      });
    }
    layout.hoverlabel = Object.assign({}, own.hoverlabel, {
      bgcolor: colour("--panel"), bordercolor: colour("--line"),
      font: Object.assign({}, own.hoverlabel.font, {color: colour("--text")})
    });
    return layout;
  }
  function start() {
    starting = starting || unpack("plotly").then(function (source) {
      var script = document.createElement("script");
      script.textContent = source;
      document.head.append(script);
    });
    return starting;
  }
  function draw(box, how) {
    var figure = figures[box.dataset.figure];
    return start().then(function () {
      box.classList.add("drawn");
      return Plotly[how](box.querySelector(".plot"), figure.data, themed(figure.layout),
        {responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"]});
    }).catch(function (fault) {
      box.classList.remove("drawn");
      console.error(fault);
    });
  }
  if (figures) {
    each("[data-figure] > .open", function (button) {
      button.hidden = false;
      button.addEventListener("click", function () {
        var box = button.parentNode, shown = box.classList.contains("drawn");
        button.textContent = shown ? "Zoom and hover" : "Back to the still figure";
        if (shown) { box.classList.remove("drawn"); Plotly.purge(box.querySelector(".plot")); } else { draw(box, "newPlot"); }
      });
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () {
      each(".drawn[data-figure]", function (box) { draw(box, "react"); });
    });
  }

  // Settings and commands to copy.
  each("button.copy", function (button) {
    button.hidden = false;
    button.addEventListener("click", function () {
      var code = button.parentNode.querySelector("code, pre"), said = button.textContent;
      function done(how) { button.textContent = how; setTimeout(function () { button.textContent = said; }, 1500); }
      function select() { getSelection().selectAllChildren(code); done(document.execCommand("copy") ? "copied" : "selected"); }
      if (navigator.clipboard) { navigator.clipboard.writeText(code.textContent).then(function () { done("copied"); }, select); } else { select(); }
    });
  });
  each("button.print", function (button) { button.hidden = false; button.addEventListener("click", function () { print(); }); });

  // Words of the field: what their title says, on a touch too.
  var meaning = null;
  function hush() { if (meaning) { meaning.remove(); meaning = null; } }
  document.addEventListener("click", function (event) {
    var word = event.target.closest("abbr[title]"), before = meaning && meaning.word, box;
    hush();
    if (!word || word === before) { return; }
    meaning = document.createElement("div");
    meaning.word = word;
    meaning.className = "tip";
    meaning.setAttribute("role", "status");
    meaning.textContent = word.title;
    document.body.append(meaning);
    box = word.getBoundingClientRect();
    meaning.style.left = scrollX + Math.max(4, Math.min(box.left, root.clientWidth - meaning.offsetWidth - 4)) + "px";
    meaning.style.top = scrollY + box.bottom + 4 + "px";
  });
  addEventListener("keydown", function (event) { if (event.key === "Escape") { hush(); } });

  // What is folded opens where a link leads into it; the figures for print.
  function reveal(target) {
    for (var one = target; one; one = one.parentElement) { if (one.tagName === "DETAILS") { one.open = true; } }
  }
  function follow() {
    var target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target) { reveal(target); target.scrollIntoView(); }
  }
  addEventListener("hashchange", follow);
  follow();
  var opened = [];
  addEventListener("beforeprint", function () {
    each("details.printed:not([open])", function (one) { one.open = true; opened.push(one); });
  });
  addEventListener("afterprint", function () { opened.splice(0).forEach(function (one) { one.open = false; }); });

  // Only what is wider than its frame is a stop of the Tab key: told anew whenever a frame or what is in it changes its size, by
  // whatever (window, fold, print, font, theme).
  function stop(one) {
    if (one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 1) { one.tabIndex = 0; } else { one.removeAttribute("tabindex"); }
  }
  var sizes = new ResizeObserver(function (changed) { changed.forEach(function (entry) { stop(entry.target.closest(".scroll")); }); });
  each(".scroll, .scroll > *", function (one) { sizes.observe(one); });
  each(".scroll", stop);
})();
