//! Output of commands: text for people, JSON for tools, progress only on a terminal.
use crate::Failure;
use crate::failure::is_hidden;
use crate::file::is_standard;
use core::time::Duration;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::io::{IsTerminal as _, Write as _, stderr, stdout};
use std::path::Path;

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text for people.
    Text,
    /// One object per result and line.
    Json,
}

/// Prints one result: as `text` says it, or as one line of JSON.
pub fn print<T: Serialize>(
    format: Format,
    result: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    match format {
        Format::Json => print_json(result),
        Format::Text => print_line(&text(result)),
    }
}

/// Prints results: as rows under a header, or each as one line of JSON.
pub fn print_rows<T: Serialize>(
    format: Format,
    results: &[T],
    header: &[&str],
    cells: impl Fn(&T) -> Vec<String>,
) -> Result<(), Failure> {
    match format {
        Format::Json => results.iter().try_for_each(print_json),
        Format::Text => print_line(&table(header, &results.iter().map(cells).collect::<Vec<_>>())),
    }
}

/// Prints one result as one line of JSON.
pub fn print_json(result: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(result).map_err(|error| Failure::failed(error.to_string()))?;
    print_raw(&line)
}

/// Prints lines for people. Nothing in them is an order to the terminal.
pub fn print_line(line: &str) -> Result<(), Failure> {
    print_raw(&escaped(line, |c| c != '\n' && is_hidden(c)))
}

/// Returns a name of a file or in it as one line that shows every character: a name may hold line breaks, orders to a terminal, and marks
/// that turn the direction of text around.
pub fn shown(name: &str) -> String {
    escaped(name, is_hidden)
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_escaped(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

/// Prints a line as it is, for programs; a reader that has seen enough is no failure.
pub fn print_raw(line: &str) -> Result<(), Failure> {
    written(writeln!(stdout().lock(), "{line}"))
}

/// Returns the outcome of a write to standard output. A reader that has seen enough is no failure.
pub fn written(outcome: std::io::Result<()>) -> Result<(), Failure> {
    match outcome {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("standard output: cannot write: {error}")))
        }
        _ => Ok(()),
    }
}

/// Returns a progress bar on standard error; hidden unless it is a terminal and the format is text.
pub fn progress(format: Format, steps: u64) -> ProgressBar {
    let watched = format == Format::Text && stderr().is_terminal();
    let target = if watched { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(steps), target);
    let style = ProgressStyle::with_template("{msg:24} {wide_bar} {pos}/{len} {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    if watched {
        bar.enable_steady_tick(Duration::from_millis(120));
    }
    bar
}

/// Returns a spinner for work of unknown length; hidden as [`progress`] is.
pub fn spinner(format: Format, message: &str) -> ProgressBar {
    let bar = progress(format, 0);
    let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.set_message(message.to_owned());
    bar
}

/// Returns the bytes for people: three digits and a unit.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (count as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.2} {}", UNITS[unit]) }
}

/// One count over another; 1 when there is nothing to compare.
#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
pub fn ratio(count: u64, of: u64) -> f64 {
    if of == 0 { 1.0 } else { count as f64 / of as f64 }
}

/// Reads bytes with an optional binary suffix: `4096`, `64K`, `1.5G`, `8GiB`. A part of a byte is cut off.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &*text[number.len()..].to_ascii_lowercase() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return None,
    };
    let Some((whole, decimals)) = number.split_once('.') else {
        return number.parse::<u64>().ok()?.checked_mul(1 << shift);
    };
    // A file has no half byte.
    let is_number = shift > 0 && !whole.is_empty() && !decimals.is_empty();
    let digits = is_number.then(|| format!("{whole}{decimals}"))?.parse::<u128>().ok()?;
    let unit = 10_u128.checked_pow(u32::try_from(decimals.len()).ok()?)?;
    u64::try_from(digits.checked_mul(1 << shift)? / unit).ok()
}

/// As [`parse_bytes`], for the command line.
pub fn bytes_argument(text: &str) -> Result<u64, String> {
    parse_bytes(text).ok_or_else(|| "expected bytes, such as 65536, 64K or 1.5G".into())
}

/// Rows under a header, columns aligned: numbers to the right, words to the left.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut lines = vec![String::new(); rows.len() + 1];
    for (column, title) in header.iter().enumerate() {
        let cells: Vec<String> = rows
            .iter()
            .map(|row| row.get(column).map_or_else(String::new, |cell| shown(cell)))
            .collect();
        let is_number = |cell: &String| cell.starts_with(|c: char| c.is_ascii_digit() || c == '-');
        let numbers = column > 0 && cells.iter().all(is_number);
        let width = |cell: &str| cell.chars().count();
        let widest = cells.iter().map(|cell| width(cell)).max().unwrap_or(0).max(width(title));
        let cells = core::iter::once(*title).chain(cells.iter().map(String::as_str));
        for (line, cell) in lines.iter_mut().zip(cells) {
            let pad = " ".repeat(widest - width(cell));
            let (before, after) = if numbers { (&*pad, "") } else { ("", &*pad) };
            line.extend([before, cell, after, "  "]);
        }
    }
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

/// Refuses to write a file over one that is read, or written, by the same command.
pub fn keep_apart(out: &Path, others: &[Option<&Path>]) -> Result<(), Failure> {
    if is_standard(out) {
        return Ok(());
    }
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    match others.iter().flatten().any(|other| real(other) == real(out)) {
        false => Ok(()),
        true => Err(Failure::input(format!(
            "{}: would be written over; name another file to write",
            out.display()
        ))),
    }
}

/// Runs work whose panics are part of its result, without printing them to standard error.
#[cfg(feature = "conformance")]
pub fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = work();
    std::panic::set_hook(hook);
    result
}

#[cfg(test)]
mod tests {
    use super::{parse_bytes, shown, table};

    #[test]
    fn a_name_is_one_line_that_shows_every_character() {
        assert_eq!(shown("layers.0.größe \"w\""), "layers.0.größe \"w\"");
        let told = shown("a\u{1b}[2J\nb\r\u{202e}c\u{2028}\u{200b}");
        assert_eq!(told, "a\\u{1b}[2J\\nb\\r\\u{202e}c\\u{2028}\\u{200b}");
        for hidden in
            ['\u{ad}', '\u{180e}', '\u{fff9}', '\u{fffb}', '\u{e0000}', '\u{e0061}', '\u{e0fff}']
        {
            assert_eq!(shown(&hidden.to_string()), hidden.escape_default().to_string());
        }
        let rows = [vec!["a\nfits".into(), "1".into()], vec!["b".into(), "2".into()]];
        assert_eq!(table(&["name", "n"], &rows), "name     n\na\\nfits  1\nb        2");
    }

    #[test]
    fn bytes_have_binary_suffixes_and_decimals() {
        assert_eq!(parse_bytes("4096"), Some(4096));
        assert_eq!(parse_bytes("8GiB"), Some(8 << 30));
        assert_eq!(parse_bytes("1.5G"), Some(3 << 29));
        assert_eq!(parse_bytes("0.1k"), Some(102), "a part of a byte is cut off");
        assert_eq!(parse_bytes("16777215.999T"), Some(u64::MAX - (1 << 40) / 1000));
        for wrong in ["", "K", "1.5", ".5G", "1.G", "1.5.5G", "1,5G", "-1", "1.-5G", "16777216T"] {
            assert_eq!(parse_bytes(wrong), None, "{wrong}");
        }
    }
}
