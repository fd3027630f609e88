//! A treemap of weights as one HTML page: an area per tensor, grouped by layer, coloured by type.
#![expect(clippy::cast_precision_loss, reason = "areas of a picture")]

use crate::{Tensor, WeightsFile};
use core::fmt::Write as _;
use std::collections::BTreeMap;

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 800.0;
/// Tensors with less area than this many square pixels are drawn as one.
const LEAST_AREA: f64 = 4.0;
const COLOURS: [&str; 8] =
    ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f"];
/// Nothing may be loaded and nothing sent, whatever a name in the file says.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// A rectangle in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Area {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

/// Returns the layer of a tensor: its name up to the first number, or else its first part.
///
/// ```
/// assert_eq!(omniheap_weights::layer_of("model.layers.3.mlp.weight"), "model.layers.3");
/// assert_eq!(omniheap_weights::layer_of("lm_head.weight"), "lm_head");
/// ```
#[must_use]
pub fn layer_of(name: &str) -> &str {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut end = 0;
    for part in name.split('.') {
        end += part.len();
        if is_number(part) {
            return &name[..end];
        }
        end += 1;
    }
    name.split('.').next().unwrap_or(name)
}

/// Divides an area among sizes, largest first, so that pieces are nearly square. The result is in the order of `sizes`.
fn divide(sizes: &[u64], mut area: Area) -> Vec<Area> {
    let mut left: f64 = sizes.iter().map(|&size| size as f64).sum();
    let mut order: Vec<_> = (0..sizes.len()).collect();
    order.sort_by_key(|&index| core::cmp::Reverse(sizes[index]));
    let mut result = vec![Area { width: 0.0, height: 0.0, ..area }; sizes.len()];
    let mut rest = &order[..];
    while !rest.is_empty() && left > 0.0 {
        let scale = area.width * area.height / left;
        let row = best_row(rest, sizes, scale, area.width.min(area.height));
        let sum: f64 = rest[..row].iter().map(|&index| sizes[index] as f64).sum();
        lay(&rest[..row], sizes, sum, scale, &mut area, &mut result);
        left -= sum;
        rest = &rest[row..];
    }
    result
}

/// Returns how many of the next pieces make the best row along a side: adding one more would make the worst piece longer.
fn best_row(rest: &[usize], sizes: &[u64], scale: f64, side: f64) -> usize {
    let (mut sum, mut worst) = (0.0, f64::INFINITY);
    for (count, &index) in rest.iter().enumerate() {
        let next = sum + sizes[index] as f64 * scale;
        let thickness = next / side;
        let length = |index: usize| sizes[index] as f64 * scale / thickness;
        let shape = |index| (length(index) / thickness).max(thickness / length(index));
        let now = shape(rest[0]).max(shape(index));
        if now > worst {
            return count;
        }
        (sum, worst) = (next, now);
    }
    rest.len()
}

/// Lays a row along the shorter side, and takes it off the area.
fn lay(row: &[usize], sizes: &[u64], sum: f64, scale: f64, area: &mut Area, result: &mut [Area]) {
    let is_wide = area.width >= area.height;
    let side = if is_wide { area.height } else { area.width };
    let thickness = (sum * scale / side).max(0.0);
    let mut at = 0.0;
    for &index in row {
        let length = if sum > 0.0 { sizes[index] as f64 / sum * side } else { 0.0 };
        result[index] = if is_wide {
            Area { x: area.x, y: area.y + at, width: thickness, height: length }
        } else {
            Area { x: area.x + at, y: area.y, width: length, height: thickness }
        };
        at += length;
    }
    if is_wide {
        (area.x, area.width) = (area.x + thickness, (area.width - thickness).max(0.0));
    } else {
        (area.y, area.height) = (area.y + thickness, (area.height - thickness).max(0.0));
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Draws the weights as a treemap: one HTML page that works from disk.
#[must_use]
pub fn treemap(file: &WeightsFile) -> String {
    let mut layers = BTreeMap::<&str, Vec<&Tensor>>::new();
    let mut colours = BTreeMap::<&str, &str>::new();
    for tensor in file.tensors() {
        layers.entry(layer_of(&tensor.name)).or_default().push(tensor);
        let next = COLOURS[colours.len() % COLOURS.len()];
        colours.entry(tensor.dtype.name()).or_insert(next);
    }
    let size = |tensors: &Vec<&Tensor>| tensors.iter().map(|tensor| tensor.size).sum();
    let sizes: Vec<u64> = layers.values().map(size).collect();
    let whole = Area { x: 0.0, y: 0.0, width: WIDTH, height: HEIGHT };
    let mut page = String::new();
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n<title>weights</title>\n\
         <style>body{{font:14px system-ui,sans-serif;color-scheme:light dark}}svg{{width:100%;height:auto}}\
         rect{{stroke:Canvas;stroke-width:.5}}.layer{{fill:none;stroke:CanvasText;stroke-width:1.5}}\
         text{{font-size:11px;fill:#fff}}</style>\n"
    );
    for (dtype, colour) in &colours {
        let _ = writeln!(page, "<span style=\"color:{colour}\">&#9632;</span> {dtype} ");
    }
    let _ = writeln!(page, "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
    for ((layer, tensors), area) in layers.iter().zip(divide(&sizes, whole)) {
        draw_layer(&mut page, layer, tensors, area, &colours);
    }
    page.push_str("</svg>\n</html>\n");
    page
}

fn draw_layer(
    page: &mut String,
    layer: &str,
    tensors: &[&Tensor],
    area: Area,
    colours: &BTreeMap<&str, &str>,
) {
    let sizes: Vec<_> = tensors.iter().map(|tensor| tensor.size).collect();
    for (tensor, Area { x, y, width, height }) in tensors.iter().zip(divide(&sizes, area)) {
        if width * height < LEAST_AREA {
            continue;
        }
        let (colour, dtype) = (colours[tensor.dtype.name()], tensor.dtype.name());
        let name = escape(&tensor.name);
        let _ = writeln!(
            page,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\">\
             <title>{name}: {dtype} {:?}, {} bytes</title></rect>",
            tensor.shape, tensor.size
        );
    }
    let Area { x, y, width, height } = area;
    let _ = writeln!(
        page,
        "<rect class=\"layer\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
    );
    if width > 7.0 * layer.len() as f64 && height > 16.0 {
        let _ = writeln!(
            page,
            "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x + 4.0,
            y + 13.0,
            escape(layer)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{Area, divide};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn areas_are_proportional_inside_and_apart(sizes in proptest::collection::vec(0_u64..1_000_000, 1..40)) {
            let whole = Area { x: 0.0, y: 0.0, width: 300.0, height: 200.0 };
            let total: f64 = sizes.iter().map(|&size| size as f64).sum();
            let areas = divide(&sizes, whole);
            for (index, (&size, area)) in sizes.iter().zip(&areas).enumerate() {
                let share = if total > 0.0 { size as f64 / total } else { 0.0 };
                prop_assert!((area.width * area.height - share * 60_000.0).abs() < 0.01, "{area:?}");
                prop_assert!(area.x >= -1e-6 && area.x + area.width <= 300.0 + 1e-6, "{area:?}");
                prop_assert!(area.y >= -1e-6 && area.y + area.height <= 200.0 + 1e-6, "{area:?}");
                for other in &areas[index + 1..] {
                    let is_apart = area.x + area.width <= other.x + 1e-6
                        || other.x + other.width <= area.x + 1e-6
                        || area.y + area.height <= other.y + 1e-6
                        || other.y + other.height <= area.y + 1e-6;
                    prop_assert!(is_apart || size == 0, "{area:?} {other:?}");
                }
            }
        }
    }
}
