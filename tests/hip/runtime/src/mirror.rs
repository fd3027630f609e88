//! The Debian mirror that this machine's apt is set up with.

use std::fs;
use std::path::{Path, PathBuf};

/// An archive to fetch from and the key that signs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mirror {
    pub(crate) uri: String,
    /// The keyring that apt checks the archive with; `None` leaves apt its own default.
    pub(crate) keyring: Option<String>,
}

/// Finds the first Debian archive in the apt configuration under `etc`.
pub(crate) fn find(etc: &Path) -> Option<Mirror> {
    source_files(etc)
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .find_map(|text| parse(&text))
}

fn source_files(etc: &Path) -> Vec<PathBuf> {
    let mut parts: Vec<_> = fs::read_dir(etc.join("sources.list.d"))
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect();
    parts.sort();
    parts.insert(0, etc.join("sources.list"));
    parts
}

/// Reads both formats of apt sources: one-line entries and stanzas.
fn parse(text: &str) -> Option<Mirror> {
    text.split("\n\n").find_map(|stanza| {
        let field =
            |name: &str| stanza.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let uri = field("URIs:").and_then(|uris| uris.split_whitespace().find_map(debian));
        uri.map_or_else(
            || stanza.lines().find_map(parse_line),
            |uri| Some(Mirror { uri, keyring: field("Signed-By:").and_then(keyring) }),
        )
    })
}

fn parse_line(line: &str) -> Option<Mirror> {
    let rest = line.strip_prefix("deb")?.strip_prefix([' ', '\t'])?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let signed = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by="));
    Some(Mirror {
        uri: debian(rest.split_whitespace().next()?)?,
        keyring: signed.and_then(keyring),
    })
}

/// Keeps a URI that ends in `/debian`: security and vendor archives hold no HIP.
fn debian(uri: &str) -> Option<String> {
    let uri = uri.trim_end_matches('/');
    uri.ends_with("/debian").then(|| uri.to_owned())
}

/// Keeps a keyring given as a path; apt also takes key material inline, which is left to its default.
fn keyring(value: &str) -> Option<String> {
    value.starts_with('/').then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Mirror, parse};

    fn mirror(uri: &str, keyring: Option<&str>) -> Option<Mirror> {
        Some(Mirror { uri: uri.into(), keyring: keyring.map(str::to_owned) })
    }

    #[test]
    fn both_formats_are_read() {
        let rows = [
            (
                "deb https://a.example/debian/ bookworm main",
                mirror("https://a.example/debian", None),
            ),
            (
                "# deb http://no.example/debian x\ndeb [arch=amd64 signed-by=/k.gpg] http://a.example/debian sid main",
                mirror("http://a.example/debian", Some("/k.gpg")),
            ),
            (
                "Types: deb\nURIs: http://s.example/debian-security\nSuites: a\n\nTypes: deb\nURIs: http://a.example/debian\n\
                 Signed-By: /k.gpg\n",
                mirror("http://a.example/debian", Some("/k.gpg")),
            ),
            ("Types: deb\nURIs: http://a.example/ubuntu\n", None),
            ("deb-src http://a.example/debian sid main", None),
            ("", None),
        ];
        for (text, expected) in rows {
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}
