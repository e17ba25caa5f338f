
(function () {
  "use strict";
  var figures = JSON.parse(document.getElementById("figures").textContent);
  var root = document.documentElement;
  function colour(name) { return getComputedStyle(root).getPropertyValue(name).trim(); }
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
  var config = {responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"]};
  function draw(how) {
    document.querySelectorAll("[data-figure]").forEach(function (box) {
      var figure = figures[box.dataset.figure];
      box.classList.add("drawn");
      Plotly[how](box.querySelector(".plot"), figure.data, themed(figure.layout), config).catch(function (fault) {
        box.classList.remove("drawn");
        console.error(fault);
      });
    });
  }
  draw("newPlot");
  addEventListener("beforeprint", function () {
    document.querySelectorAll("details.finding").forEach(function (one) { one.open = true; });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () { draw("react"); });
})();
