//! A treemap of weights as one HTML page: an area per tensor, grouped by layer, coloured by type.
#![expect(clippy::cast_precision_loss, reason = "areas of a picture")]

use crate::{Tensor, WeightsFile};
use core::fmt::Write as _;
use std::collections::BTreeMap;

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 800.0;
/// Tensors with less area than this many square pixels are drawn as one.
const LEAST_AREA: f64 = 4.0;
/// Height of a line of text.
const LINE: f64 = 16.0;
/// Rows of the table of the largest tensors.
const LISTED: usize = 200;
/// The colours of reports: those of Okabe and Ito and a wine of Tol's, which stay apart for colour-blind people.
const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#882255"];
/// Colours by type or by layer, without a script.
const CHOICE: &str = "<p class=\"choice\"><label><input type=\"radio\" name=\"by\" checked> colour by type</label> \
    <label><input type=\"radio\" name=\"by\" id=\"by-layer\"> by layer</label></p>\n";
const STYLE: &str = include_str!("picture/style.css");
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

/// Returns bytes as text: three digits and a unit.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (count as f64 / 1024.0, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    if count < 1024 { format!("{count} B") } else { format!("{value:.2} {}", UNITS[unit]) }
}

/// Tensors that have a name in common: of one layer, or of one type.
struct Group<'a> {
    name: &'a str,
    tensors: Vec<&'a Tensor>,
    size: u64,
    colour: &'static str,
}

/// Returns groups in the order of their names, each with the next colour.
fn groups<'a>(file: &'a WeightsFile, name: impl Fn(&'a Tensor) -> &'a str) -> Vec<Group<'a>> {
    let mut groups = BTreeMap::<&str, Vec<&Tensor>>::new();
    for tensor in file.tensors() {
        groups.entry(name(tensor)).or_default().push(tensor);
    }
    let group = |(at, (name, tensors)): (usize, (&'a str, Vec<&'a Tensor>))| {
        let size = tensors.iter().map(|tensor| tensor.size).sum();
        Group { name, tensors, size, colour: COLOURS[at % COLOURS.len()] }
    };
    groups.into_iter().enumerate().map(group).collect()
}

/// Draws the weights as one HTML page that works from disk: totals, a treemap by layer and type, and tables of both.
#[must_use]
pub fn treemap(file: &WeightsFile) -> String {
    let (layers, types) =
        (groups(file, |tensor| layer_of(&tensor.name)), groups(file, |it| it.dtype.name()));
    let mut page = String::new();
    let title = escape(&title(file));
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n<h1>{title}</h1>\n"
    );
    figures(&mut page, file, &layers, &types);
    page.push_str(CHOICE);
    legend(&mut page, "types", &types);
    // Layers take colours in turn, because their names are in the picture.
    let _ = writeln!(page, "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
    let sizes: Vec<_> = layers.iter().map(|layer| layer.size).collect();
    let whole = Area { x: 0.0, y: 0.0, width: WIDTH, height: HEIGHT };
    for (layer, area) in layers.iter().zip(divide(&sizes, whole)) {
        draw_layer(&mut page, layer, area, &types);
    }
    page.push_str("</svg>\n<main>\n");
    table(&mut page, "Layers", &layers);
    table(&mut page, "Types", &types);
    largest(&mut page, file);
    page.push_str("</main>\n</html>\n");
    page
}

fn title(file: &WeightsFile) -> String {
    let [first, others @ ..] = file.files() else { return "weights".into() };
    let name = first.path.file_name().unwrap_or(first.path.as_os_str()).to_string_lossy();
    if others.is_empty() { name.into() } else { format!("{name} and {} more", others.len()) }
}

/// Writes the totals.
fn figures(page: &mut String, file: &WeightsFile, layers: &[Group<'_>], types: &[Group<'_>]) {
    let size: u64 = layers.iter().map(|layer| layer.size).sum();
    // A tensor of a file has fewer elements than the file has bits.
    let elements =
        |tensor: &Tensor| tensor.shape.iter().map(|&extent| extent as f64).product::<f64>();
    let parameters: f64 = file.tensors().iter().map(elements).sum();
    let counts = [
        ("bytes", bytes(size)),
        (
            "parameters",
            match parameters >= 1e9 {
                true => format!("{:.2} billion", parameters / 1e9),
                false => format!("{:.2} million", parameters / 1e6),
            },
        ),
        ("tensors", file.tensors().len().to_string()),
        ("layers", layers.len().to_string()),
        ("types", types.len().to_string()),
        ("files", file.files().len().to_string()),
    ];
    page.push_str("<p class=\"figures\">\n");
    for (name, count) in counts {
        let _ = writeln!(page, "<span>{name} <b>{count}</b></span>");
    }
    page.push_str("</p>\n");
}

fn legend(page: &mut String, class: &str, groups: &[Group<'_>]) {
    let _ = write!(page, "<p class=\"legend {class}\">");
    for Group { name, size, colour, .. } in groups {
        let (name, size) = (escape(name), bytes(*size));
        let _ = write!(page, "<span><i style=\"background:{colour}\"></i>{name} {size}</span> ");
    }
    page.push_str("</p>\n");
}

fn draw_layer(page: &mut String, layer: &Group<'_>, area: Area, types: &[Group<'_>]) {
    let sizes: Vec<_> = layer.tensors.iter().map(|tensor| tensor.size).collect();
    let _ = writeln!(page, "<g style=\"--layer:{}\">", layer.colour);
    for (tensor, Area { x, y, width, height }) in layer.tensors.iter().zip(divide(&sizes, area)) {
        if width * height < LEAST_AREA {
            continue;
        }
        let (dtype, name, size) = (tensor.dtype.name(), escape(&tensor.name), bytes(tensor.size));
        let of_type = types.iter().find(|group| group.name == dtype);
        let colour = of_type.map_or(COLOURS[0], |group| group.colour);
        let _ = writeln!(
            page,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" style=\"--type:{colour}\">\
             <title>{name}: {dtype} {:?}, {size}</title></rect>",
            tensor.shape
        );
        let inner = tensor.name.strip_prefix(layer.name).unwrap_or(&tensor.name);
        label(
            page,
            "name",
            inner.trim_start_matches('.'),
            Area { x, y: y + LINE, width, height: height - LINE },
        );
    }
    let Area { x, y, width, height } = area;
    let _ = writeln!(
        page,
        "<rect class=\"layer\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
    );
    label(page, "title", &format!("{} · {}", layer.name, bytes(layer.size)), area);
    page.push_str("</g>\n");
}

/// Writes a text at the upper left corner of an area, if it fits there.
fn label(page: &mut String, class: &str, text: &str, area: Area) {
    let length = 7.0 * text.chars().count() as f64;
    if !text.is_empty() && area.width > length && area.height > LINE {
        let (x, y, text) = (area.x + 4.0, area.y + 13.0, escape(text));
        let _ = writeln!(page, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>");
    }
}

/// Writes the totals of groups, largest first.
fn table(page: &mut String, title: &str, groups: &[Group<'_>]) {
    let whole: u64 = groups.iter().map(|group| group.size).sum();
    let mut order: Vec<_> = groups.iter().collect();
    order.sort_by_key(|group| core::cmp::Reverse(group.size));
    let _ = writeln!(
        page,
        "<section><h2>{title}</h2><div><table><tr><th>name<th>tensors<th>bytes<th>share</tr>"
    );
    for group in order {
        let share = 100.0 * group.size as f64 / whole.max(1) as f64;
        let (name, count, size) = (escape(group.name), group.tensors.len(), bytes(group.size));
        let _ = writeln!(page, "<tr><td>{name}<td>{count}<td>{size}<td>{share:.1} %</tr>");
    }
    page.push_str("</table></div></section>\n");
}

/// Writes the largest tensors.
fn largest(page: &mut String, file: &WeightsFile) {
    let mut order: Vec<_> = file.tensors().iter().collect();
    order.sort_by_key(|tensor| core::cmp::Reverse(tensor.size));
    let _ = writeln!(
        page,
        "<section class=\"wide\"><h2>Largest tensors</h2><div><table><tr><th>name<th>type<th>shape<th>bytes</tr>"
    );
    for tensor in order.into_iter().take(LISTED) {
        let (name, dtype, size) = (escape(&tensor.name), tensor.dtype.name(), bytes(tensor.size));
        let _ = writeln!(page, "<tr><td>{name}<td>{dtype}<td>{:?}<td>{size}</tr>", tensor.shape);
    }
    page.push_str("</table></div></section>\n");
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
