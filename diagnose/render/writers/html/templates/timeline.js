
(function () {
  "use strict";
  // All operations of a step on a canvas: lanes of streams, above them what no compute ran for. What is narrower than a pixel is merged as it is
  // drawn. The wheel zooms, dragging moves, dragging with Shift (or in the strip below) chooses a stretch; + - arrows 0 and Escape do the same.
  var LANE = 22, TOP = 22, STRIP = 26, FONT = "11px system-ui, sans-serif";

  function prepared(data) {
    var rows = data.rows.map(function () { return []; }), at = 0, count = data.row.length;
    data.begin = new Float64Array(count);
    data.queued = data.queued || new Int8Array(count).fill(-1);  // a light page has no room for them
    data.range = data.range || new Int8Array(count).fill(-1);
    for (var place = 0; place < count; place++) {
      at += data.start[place] * data.unit;
      data.length[place] *= data.unit;
      if (data.queued[place] > 0) { data.queued[place] *= data.unit; }
      data.begin[place] = at;
      rows[data.row[place]].push(place);
    }
    data.lanes = rows.map(function (row) {
      row.sort(function (one, other) { return data.begin[one] - data.begin[other]; });
      var reach = new Float64Array(row.length), most = -1;  // the latest end so far: where to begin to look
      row.forEach(function (place, index) { most = Math.max(most, data.begin[place] + data.length[place]); reach[index] = most; });
      return {spans: row, reach: reach};
    });
    return data;
  }
  function firstAfter(reach, time) {
    var low = 0, high = reach.length;
    while (low < high) { var middle = (low + high) >> 1; if (reach[middle] < time) { low = middle + 1; } else { high = middle; } }
    return low;
  }
  function duration(ns) {
    if (ns < 1000) { return ns + "\u00a0ns"; }
    return ns < 1e6 ? (ns / 1e3).toFixed(2) + "\u00a0\u00b5s" : (ns / 1e6).toFixed(3) + "\u00a0ms";
  }

  function Timeline(box, data) {
    var canvas = document.createElement("canvas"), tip = document.createElement("div"), pen = canvas.getContext("2d");
    var widest = Math.min(150, 20 + 6.2 * Math.max.apply(null, data.rows.map(function (name) { return name.length; })));
    var view = [0, data.end], width = 0, label = widest, height = TOP + LANE * data.rows.length + STRIP + 18, waiting = false, chosen = -1, named = -1, brush = null;
    var style, patterns = {}, bottom = TOP + LANE * data.rows.length;
    box.append(canvas, tip);
    box.hidden = false;
    box.parentNode.classList.add("alive");
    tip.className = "tip";
    tip.hidden = true;
    canvas.style.height = height + "px";

    function theme() {
      var found = getComputedStyle(document.documentElement);
      style = {};
      ["--text", "--muted", "--line", "--panel", "--bg", "--link"].forEach(function (name) { style[name] = found.getPropertyValue(name).trim(); });
      again();
    }
    function size() {
      width = box.clientWidth;
      label = Math.min(widest, width / 4);
      var scale = devicePixelRatio || 1;
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      pen.setTransform(scale, 0, 0, scale, 0, 0);
      again();
    }
    function again() { if (!waiting) { waiting = true; requestAnimationFrame(function () { waiting = false; if (width > 0) { draw(); } }); } }
    function across(time) { return label + (width - label) * (time - view[0]) / (view[1] - view[0]); }
    function timeAt(x) { return view[0] + (x - label) / (width - label) * (view[1] - view[0]); }
    function overview(time) { return label + (width - label) * time / data.end; }
    function look(from, to) {
      var length = Math.min(Math.max(to - from, 200), data.end);
      from = Math.min(Math.max(from, 0), data.end - length);
      view = [from, from + length];
      again();
    }
    function zoom(factor, at) { look(at - (at - view[0]) * factor, at + (view[1] - at) * factor); }

    function fill(kind) {
      var own = data.looks[kind];
      if (!own.pattern) { return own.colour; }
      if (!patterns[kind]) {
        var tile = document.createElement("canvas"), ink = tile.getContext("2d");
        tile.width = tile.height = 6;
        ink.fillStyle = own.colour;
        ink.fillRect(0, 0, 6, 6);
        ink.strokeStyle = "rgba(255,255,255,0.6)";
        ink.lineWidth = 1.2;
        ink.stroke(new Path2D({"/": "M-1 7L7-1M-1 1L1-1M5 7L7 5", "\\": "M-1-1L7 7M5-1L7 1M-1 5L1 7", "x": "M-1 7L7-1M-1-1L7 7",
          "+": "M3 0V6M0 3H6", "-": "M0 3H6", ".": "M2 3H4"}[own.pattern]));
        patterns[kind] = pen.createPattern(tile, "repeat");
      }
      return patterns[kind];
    }
    function text(content, x, y, room) {
      var most = Math.floor(room / 6.1);
      if (most > 2) { pen.fillText(content.length > most ? content.slice(0, most - 1) + "\u2026" : content, x, y); }
    }
    function dark(hex) {
      return parseInt(hex.slice(1, 3), 16) * 0.3 + parseInt(hex.slice(3, 5), 16) * 0.59 + parseInt(hex.slice(5, 7), 16) * 0.11 < 140;
    }

    function lane(row) {
      var spans = data.lanes[row].spans, y = TOP + LANE * row + 2, tall = LANE - 4, pixel = -1, held = new Float64Array(data.looks.length), touched = [], run = -1, from = 0, wide = 0;
      function paint() {  // neighbouring pixels of one look are one rectangle
        if (wide) { pen.fillStyle = data.looks[run].colour; pen.fillRect(from, y, wide, tall); }
        wide = 0;
      }
      function flush() {
        if (pixel < 0) { return; }
        var best = touched[0];
        touched.forEach(function (kind) { if (held[kind] > held[best]) { best = kind; } held[kind] = 0; });
        if (best !== run || pixel !== from + wide) { paint(); run = best; from = pixel; }
        wide++;
        touched.length = 0;
        pixel = -1;
      }
      for (var index = firstAfter(data.lanes[row].reach, view[0]); index < spans.length; index++) {
        var place = spans[index], begin = data.begin[place];
        if (begin > view[1]) { break; }
        var left = across(begin), right = across(begin + data.length[place]), kind = data.look[place];
        if (right < label) { continue; }
        if (right - left < 1) {
          var at = Math.floor(left);
          if (at !== pixel) { flush(); pixel = at; }
          if (!held[kind]) { touched.push(kind); }
          held[kind] += data.length[place] + 1;
          continue;
        }
        left = Math.max(left, label);
        right = Math.min(right, width);
        pen.globalAlpha = named >= 0 && data.name[place] !== named && data.range[place] !== named ? 0.3 : 1;
        pen.fillStyle = fill(kind);
        pen.fillRect(left, y, right - left, tall);
        pen.globalAlpha = 1;
        if (right - left > 2.5) { pen.fillStyle = style["--bg"]; pen.fillRect(right - 0.5, y, 0.5, tall); }
        if (right - left > 46 && data.name[place] >= 0) {
          pen.fillStyle = dark(data.looks[kind].colour) ? "#fff" : "#000";
          text(data.names[data.name[place]], left + 4, y + 13, right - left - 8);
        }
      }
      flush();
      paint();
    }
    function middle(place) { return TOP + LANE * data.row[place] + LANE / 2; }
    function arrow(gap, strong) {
      var by = data.by[gap], end = data.begin[gap] + data.length[gap];
      var from = Math.max(label, across(Math.min(data.begin[by] + data.length[by], end))), to = across(end), down = middle(by) - LANE / 2 + 3, up = TOP + LANE - 3;
      if (to < label || from > width) { return; }
      pen.strokeStyle = pen.fillStyle = strong ? style["--text"] : style["--muted"];
      pen.lineWidth = strong ? 1.6 : 0.8;
      pen.beginPath();
      pen.moveTo(from, down);
      pen.bezierCurveTo(from, (down + up) / 2, to, (down + up) / 2, to, up);
      pen.stroke();
      pen.beginPath();
      pen.moveTo(to, up - 1);
      pen.lineTo(to - 3, up + 5);
      pen.lineTo(to + 3, up + 5);
      pen.fill();
    }
    function outline(place) {
      var left = Math.max(across(data.begin[place]), label), right = Math.min(across(data.begin[place] + data.length[place]), width);
      pen.strokeStyle = style["--text"];
      pen.lineWidth = 1.5;
      pen.strokeRect(left - 0.5, TOP + LANE * data.row[place] + 1, Math.max(right - left, 2) + 1, LANE - 2);
    }
    function axis() {
      var span = view[1] - view[0], most = Math.max(2, Math.floor((width - label) / 110)), power = Math.pow(10, Math.floor(Math.log10(span / most)));
      var step = [1, 2, 5, 10].map(function (one) { return one * power; }).find(function (one) { return one >= span / most; });
      var digits = Math.max(0, -Math.floor(Math.log10(step / 1e6) + 1e-9));
      for (var at = Math.ceil(view[0] / step) * step; at <= view[1]; at += step) {
        pen.fillStyle = style["--line"];
        pen.fillRect(across(at), TOP - 4, 1, bottom - TOP + 4);
        pen.fillStyle = style["--muted"];
        text((at / 1e6).toFixed(digits) + " ms", across(at) + 3, 13, width - across(at) - 3);
      }
    }
    function strip() {
      var y = bottom + 8, left = overview(view[0]), right = overview(view[1]);
      pen.drawImage(small(), label, y, width - label, STRIP - 8);
      pen.fillStyle = style["--bg"];
      pen.globalAlpha = 0.65;
      pen.fillRect(label, y, left - label, STRIP - 8);
      pen.fillRect(right, y, width - right, STRIP - 8);
      pen.globalAlpha = 1;
      pen.strokeStyle = style["--link"];
      pen.lineWidth = 1.5;
      pen.strokeRect(left, y - 1, Math.max(3, right - left), STRIP - 6);
      pen.fillStyle = style["--muted"];
      text("overview", 4, y + 13, label - 8);
    }
    var picture = null;
    function small() {  // the whole step, drawn once: of each stretch the look that fills most of it, without compute above
      if (picture) { return picture; }
      picture = document.createElement("canvas");
      picture.width = 1000;
      picture.height = 18;
      var ink = picture.getContext("2d"), busy = Array.from({length: 1000}, function () { return {}; });
      data.row.forEach(function (row, place) {
        var from = Math.min(999, Math.floor(1000 * data.begin[place] / data.end)), to = Math.min(999, Math.floor(1000 * (data.begin[place] + data.length[place]) / data.end));
        for (var at = from; at <= to; at++) {
          if (row) { busy[at][data.look[place]] = (busy[at][data.look[place]] || 0) + data.length[place]; }
        }
        if (!row) { ink.fillStyle = data.looks[data.look[place]].colour; ink.fillRect(1000 * data.begin[place] / data.end, 0, Math.max(0.3, 1000 * data.length[place] / data.end), 6); }
      });
      busy.forEach(function (looks, at) {
        var best = Object.keys(looks).sort(function (one, other) { return looks[other] - looks[one]; })[0];
        if (best !== undefined) { ink.fillStyle = data.looks[best].colour; ink.fillRect(at, 7, 1, 11); }
      });
      return picture;
    }
    function draw() {
      pen.clearRect(0, 0, width, height);
      pen.font = FONT;
      axis();
      data.rows.forEach(function (name, row) {
        lane(row);
        pen.clearRect(0, TOP + LANE * row, label, LANE);
        pen.fillStyle = style["--text"];
        text(name, 4, TOP + LANE * row + 15, label - 8);
      });
      var gaps = data.lanes[0].spans, arrows = 0;
      for (var index = firstAfter(data.lanes[0].reach, view[0]); index < gaps.length && arrows < 60; index++) {
        var gap = gaps[index];
        if (data.begin[gap] > view[1]) { break; }
        if (data.by[gap] >= 0 && data.length[gap] / (view[1] - view[0]) * (width - label) > 5) { arrow(gap, false); arrows++; }
      }
      if (chosen >= 0) { outline(chosen); if (data.by[chosen] >= 0) { outline(data.by[chosen]); arrow(chosen, true); } }
      strip();
      if (brush) {
        pen.fillStyle = style["--link"];
        pen.globalAlpha = 0.2;
        pen.fillRect(Math.min(brush[0], brush[1]), TOP, Math.abs(brush[1] - brush[0]), bottom - TOP);
        pen.globalAlpha = 1;
      }
    }

    function under(x, y) {
      var row = Math.floor((y - TOP) / LANE);
      if (row < 0 || row >= data.rows.length || x < label) { return -1; }
      var time = timeAt(x), slack = 3 / (width - label) * (view[1] - view[0]), spans = data.lanes[row].spans, best = -1, nearest = slack;
      for (var index = firstAfter(data.lanes[row].reach, time - slack); index < spans.length && data.begin[spans[index]] <= time + slack; index++) {
        var place = spans[index], away = Math.max(data.begin[place] - time, time - data.begin[place] - data.length[place], 0);
        if (away <= nearest) { nearest = away; best = place; }
      }
      return best;
    }
    function tell(place) {
      var lines = [data.name[place] >= 0 ? data.names[data.name[place]] : data.looks[data.look[place]].label];
      if (data.name[place] >= 0) { lines.push(data.looks[data.look[place]].label + " \u00b7 " + data.rows[data.row[place]]); }
      lines.push(duration(data.length[place]) + ", from " + (data.begin[place] / 1e6).toFixed(3) + "\u00a0ms");
      if (data.queued[place] >= 0) { lines.push("launched " + duration(data.queued[place]) + " before its start"); }
      if (data.range[place] >= 0) { lines.push("in " + data.names[data.range[place]]); }
      if (data.by[place] >= 0) { lines.push("waited for " + data.names[data.name[data.by[place]]]); }
      return lines;
    }
    function show(place, x, y) {
      if (place !== chosen) { chosen = place; again(); }
      tip.hidden = place < 0;
      if (place >= 0) {
        tip.replaceChildren.apply(tip, tell(place).map(function (line) { var one = document.createElement("div"); one.textContent = line; return one; }));
        tip.style.left = Math.max(0, Math.min(x + 14, width - tip.offsetWidth - 4)) + "px";
        tip.style.top = y + 18 + "px";
      }
    }

    var held = null;
    canvas.addEventListener("pointerdown", function (event) {
      if (event.button) { return; }
      canvas.setPointerCapture(event.pointerId);
      held = {x: event.offsetX, view: view.slice(), how: event.offsetY > bottom ? "strip" : event.shiftKey ? "brush" : "move"};
      if (held.how === "strip") { event.preventDefault(); }
      if (held.how === "brush") { brush = [event.offsetX, event.offsetX]; }
    });
    canvas.addEventListener("pointermove", function (event) {
      var x = event.offsetX;
      if (!held) { show(under(x, event.offsetY), x, event.offsetY); return; }
      if (held.how === "move") {
        var by = (x - held.x) / (width - label) * (held.view[1] - held.view[0]);
        look(held.view[0] - by, held.view[1] - by);
      } else if (held.how === "brush") { brush[1] = Math.max(label, x); again(); } else {
        look((Math.min(held.x, x) - label) / (width - label) * data.end, (Math.max(held.x, x) - label) / (width - label) * data.end);
      }
      show(-1);
    });
    function release(event) {
      if (held && held.how === "brush" && Math.abs(brush[1] - brush[0]) > 3) { look(timeAt(Math.min(brush[0], brush[1])), timeAt(Math.max(brush[0], brush[1]))); }
      if (held && held.how === "strip" && Math.abs(event.offsetX - held.x) < 4) {  // a click there moves the view to it
        var length = held.view[1] - held.view[0], at = (event.offsetX - label) / (width - label) * data.end;
        look(at - length / 2, at + length / 2);
      }
      held = brush = null;
      again();
    }
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("pointerleave", function () { show(-1); });
    canvas.addEventListener("dblclick", function () { named = -1; look(0, data.end); });
    canvas.addEventListener("wheel", function (event) {
      var sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
      event.preventDefault();
      if (sideways) {
        var by = (event.deltaX || event.deltaY) / (width - label) * (view[1] - view[0]);
        look(view[0] + by, view[1] + by);
      } else { zoom(Math.pow(1.0018, event.deltaY), timeAt(Math.max(label, event.offsetX))); }
    }, {passive: false});
    box.addEventListener("keydown", function (event) {
      var length = view[1] - view[0], centre = (view[0] + view[1]) / 2;
      var keys = {
        "+": function () { zoom(0.6, centre); }, "=": function () { zoom(0.6, centre); }, "-": function () { zoom(1 / 0.6, centre); },
        "ArrowLeft": function () { look(view[0] - length / 5, view[1] - length / 5); },
        "ArrowRight": function () { look(view[0] + length / 5, view[1] + length / 5); },
        "0": function () { look(0, data.end); }, "Escape": function () { named = -1; look(0, data.end); }
      };
      if (keys[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); keys[event.key](); }
    });
    new ResizeObserver(size).observe(box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", theme);
    theme();
    size();

    this.find = function (name) {  // the longest of that name, with all others of it
      var place = -1;
      named = name;
      data.row.forEach(function (_, one) {
        if (data.name[one] === named && named >= 0 && (place < 0 || data.length[one] > data.length[place])) { place = one; }
      });
      if (place >= 0) {
        var around = Math.max(data.length[place] * 4, data.end / 200);
        look(data.begin[place] - around, data.begin[place] + data.length[place] + around);
        chosen = place;
        again();
      }
      box.focus({preventScroll: true});
    };
  }

  document.querySelectorAll("[data-live]").forEach(function (box) {
    var fold = box.closest("details"), made = null;
    function live() {
      made = made || unpack(box.dataset.live).then(function (text) { return new Timeline(box, prepared(JSON.parse(text))); });
      return made;
    }
    if (fold && !fold.open) { fold.addEventListener("toggle", live, {once: true}); } else { live(); }
    document.querySelectorAll("a[data-name]").forEach(function (link) {
      link.addEventListener("click", function () {
        if (fold) { fold.open = true; }
        live().then(function (timeline) { timeline.find(Number(link.dataset.name)); });
      });
    });
  });
})();
