export { hierarchy, tree } from "d3-hierarchy";
export { scaleLinear } from "d3-scale";
export { select } from "d3-selection";
export { linkHorizontal } from "d3-shape";
export { zoom, zoomIdentity } from "d3-zoom";
