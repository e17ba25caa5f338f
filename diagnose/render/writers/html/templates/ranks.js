
(function () {
  "use strict";
  var data = JSON.parse(document.getElementById("rank-data").textContent);
  var area = document.getElementById("compare");
  var picks = [document.getElementById("compare-first"), document.getElementById("compare-second")];
  function grouped(text) { return text.replace(/\B(?=(\d{3})+(?!\d))/g, ","); }
  function number(value, unit) {
    var whole = Math.abs(value), micro = Math.floor(whole / 1000);
    // Exactly between two thousandths the rest of the page takes the even one, toFixed the larger.
    if (unit === "ms" && whole % 1000 === 500 && whole % 15625 === 0 && micro % 2 === 0) { whole = micro * 1000; }
    var parts = unit === "ms" ? (whole / 1e6).toFixed(3).split(".") : [String(whole)];
    parts[0] = grouped(parts[0]);
    return parts.join(".");
  }
  function shown(value, unit) {
    if (value === null) { return "\u2013"; }
    return unit === "text" ? value : (value < 0 ? "-" : "") + number(value, unit);
  }
  function difference(one, other, unit) {
    if (unit === "text") { return ""; }
    if (one === null || other === null) { return "\u2013"; }
    var text = number(one - other, unit);
    return (!/[1-9]/.test(text) ? "" : one < other ? "-" : "+") + text;
  }
  function fill() {
    var one = data.ranks[picks[0].value], other = data.ranks[picks[1].value], longest = 0;
    area.querySelectorAll("[data-first]").forEach(function (cell) { cell.textContent = one.label; });
    area.querySelectorAll("[data-second]").forEach(function (cell) { cell.textContent = other.label; });
    area.querySelector("[data-note]").textContent =
      one.group === null || other.group === null ? data.unknown : one.group === other.group ? data.same : data.different;
    var rows = area.querySelectorAll("tr[data-row]");
    rows.forEach(function (row) {
      if (row.dataset.unit === "ms") {
        longest = Math.max(longest, Math.abs(one.values[row.dataset.row] - other.values[row.dataset.row]) || 0);
      }
    });
    rows.forEach(function (row) {
      var unit = row.dataset.unit, left = one.values[row.dataset.row], right = other.values[row.dataset.row];
      row.cells[1].textContent = shown(left, unit);
      row.cells[2].textContent = shown(right, unit);
      row.cells[3].textContent = difference(left, right, unit);
      var bar = row.querySelector(".versus span"), more = left - right;
      if (bar) {
        bar.className = more < 0 ? "less" : "more";
        bar.style.width = (left === null || right === null || !longest ? 0 : 50 * Math.abs(more) / longest).toFixed(2) + "%";
      }
    });
  }
  picks.forEach(function (pick, index) {
    data.ranks.forEach(function (rank, place) {
      var option = document.createElement("option");
      option.value = place;
      option.textContent = rank.label + rank.remark;
      pick.appendChild(option);
    });
    pick.value = data.start[index];
    pick.addEventListener("change", fill);
  });
  area.querySelector(".pickers").hidden = false;
  fill();
})();
