// What is wrong with the places of texts and boxes: an array of sentences. Run in the page.
(() => {
  const problems = [];
  const slack = 1.5;
  const inside = (a, b) =>
    a.left >= b.left - slack && a.right <= b.right + slack && a.top >= b.top - slack && a.bottom <= b.bottom + slack;
  const apart = (a, b) =>
    a.right <= b.left + slack || b.right <= a.left + slack || a.bottom <= b.top + slack || b.bottom <= a.top + slack;
  const named = (element) => (element.textContent || element.getAttribute("class") || element.tagName).slice(0, 60);
  for (const svg of document.querySelectorAll("svg[role=img]")) {
    const whole = svg.getBoundingClientRect();
    const boxes = [...svg.querySelectorAll("rect.box")].map((element) => [element, element.getBoundingClientRect()]);
    const texts = [...svg.querySelectorAll("text")].map((element) => [element, element.getBoundingClientRect()]);
    for (const [element, area] of [...boxes, ...texts])
      if (!inside(area, whole)) problems.push(`beyond the drawing: ${named(element)}`);
    // A text is in the smallest box where it begins, and must end there too.
    for (const [element, area] of texts) {
      const x = area.left + 1, y = (area.top + area.bottom) / 2;
      const around = boxes
        .filter(([, box]) => x >= box.left && x <= box.right && y >= box.top && y <= box.bottom)
        .sort(([, a], [, b]) => a.width * a.height - b.width * b.height);
      if (around.length && area.right > around[0][1].right + slack) problems.push(`wider than its box: ${named(element)}`);
    }
    for (let first = 0; first < texts.length; first++)
      for (let second = first + 1; second < texts.length; second++)
        if (!apart(texts[first][1], texts[second][1]) && overlap(texts[first][1], texts[second][1]) > 12)
          problems.push(`texts overlap: ${named(texts[first][0])} / ${named(texts[second][0])}`);
    for (let first = 0; first < boxes.length; first++)
      for (let second = first + 1; second < boxes.length; second++) {
        const [a, b] = [boxes[first][1], boxes[second][1]];
        if (!apart(a, b) && !inside(a, b) && !inside(b, a))
          problems.push(`boxes overlap: ${named(boxes[first][0])} / ${named(boxes[second][0])}`);
      }
  }
  function overlap(a, b) {
    return (Math.min(a.right, b.right) - Math.max(a.left, b.left)) * (Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top));
  }
  return problems;
})()
