//! A suite's package index: what exists, what it depends on, which checksum it has.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// One package of the index.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) sha256: String,
    /// File name in the archive's pool, without folders.
    pub(crate) file: String,
    depends: Vec<String>,
}

/// All packages of the suites that were read; a suite read later replaces packages of the same name.
#[derive(Debug, Default)]
pub(crate) struct Index {
    packages: HashMap<String, Package>,
    /// Virtual package name to the first package that provides it.
    provided: HashMap<String, String>,
}

impl Index {
    /// Adds every package of an index in Debian's control format.
    pub(crate) fn read(&mut self, text: &str) {
        for stanza in text.split("\n\n") {
            let fields: HashMap<&str, &str> =
                stanza.lines().filter_map(|line| line.split_once(": ")).collect();
            let Some(package) = package(&fields) else { continue };
            for name in fields.get("Provides").map_or_else(Vec::new, |list| names(list)) {
                self.provided.entry(name).or_insert_with(|| package.name.clone());
            }
            self.packages.insert(package.name.clone(), package);
        }
    }

    /// Returns `roots` and every library they need, sorted by name.
    ///
    /// Programs and data that packages depend on are left out: only the loader is going to read the result.
    pub(crate) fn resolve(&self, roots: &[&str]) -> Result<Vec<&Package>, String> {
        let mut wanted: Vec<String> = roots.iter().map(|&root| root.to_owned()).collect();
        let mut found = BTreeMap::new();
        let mut seen = BTreeSet::new();
        while let Some(name) = wanted.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            match self.find(&name) {
                Some(package) => {
                    wanted.extend(package.depends.iter().filter(|name| is_library(name)).cloned());
                    found.insert(&package.name, package);
                }
                None if roots.contains(&name.as_str()) => return Err(name),
                None => {} // An alternative that this suite no longer has; the loader reports it if it mattered.
            }
        }
        Ok(found.into_values().collect())
    }

    fn find(&self, name: &str) -> Option<&Package> {
        self.packages.get(name).or_else(|| self.packages.get(self.provided.get(name)?))
    }
}

fn package(fields: &HashMap<&str, &str>) -> Option<Package> {
    let text = |name: &str| fields.get(name).map(|value| (*value).to_owned());
    Some(Package {
        name: text("Package")?,
        version: text("Version")?,
        sha256: text("SHA256")?,
        file: fields.get("Filename")?.rsplit('/').next()?.to_owned(),
        depends: fields.get("Depends").map_or_else(Vec::new, |list| names(list)),
    })
}

/// Returns the first alternative of each comma-separated relation, without its version.
fn names(list: &str) -> Vec<String> {
    list.split(',')
        .filter_map(|relation| relation.split(['|', '(', ':']).next()?.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

fn is_library(name: &str) -> bool {
    name.starts_with("lib") || name == "zlib1g" || name.starts_with("rocm-device-libs")
}

#[cfg(test)]
mod tests {
    use super::Index;

    fn stanza(name: &str, version: &str, rest: &str) -> String {
        format!(
            "Package: {name}\nVersion: {version}\nFilename: pool/x/{name}.deb\nSHA256: 00\n{rest}\n\n"
        )
    }

    #[test]
    fn dependencies_are_followed_through_provides_and_later_suites_win() {
        let mut index = Index::default();
        index.read(&stanza(
            "libroot",
            "1",
            "Depends: libone (>= 2) | libother, libvirtual-abi (= 3), hipcc, liblost",
        ));
        index.read(&stanza("libone", "1", "Depends: libroot"));
        index.read(&stanza("libreal", "1", "Provides: libvirtual-abi (= 3)"));
        index.read(&stanza("hipcc", "1", ""));
        index.read(&stanza("libone", "2", ""));
        let found = index.resolve(&["libroot"]).expect("the root is there");
        let names: Vec<_> =
            found.iter().map(|package| format!("{}={}", package.name, package.version)).collect();
        assert_eq!(names, ["libone=2", "libreal=1", "libroot=1"]);
    }

    #[test]
    fn a_missing_root_is_named() {
        assert_eq!(Index::default().resolve(&["libamdhip64-9"]).unwrap_err(), "libamdhip64-9");
    }
}
