//! Checks that files beside each other import in one direction only, in every published crate.
//!
//! A file and the modules inside it may name each other where they are few: a module's parts work on what it holds. In a folder
//! of more than [`FEW`] lines they import in one direction too, but for those that are [listed](KNOTS).
use crate::packages::published;
use crate::step::Outcome;
use crate::words::files;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module by its path from the root of the crate, without a name for the root.
type Module = Vec<String>;

/// The modules that each module names.
type Imports = BTreeMap<Module, BTreeSet<Module>>;

/// Lines of a module and its parts that may name each other.
const FEW: usize = 1500;

/// Larger modules whose parts still name them, by crate.
const KNOTS: [(&str, &str); 5] = [
    ("omniheap-cli", "command"),
    ("omniheap-conformance", "cases"),
    ("omniheap-core", "manager"),
    ("omniheap-plan", "activation"),
    ("omniheap-trace", "report"),
];

pub(crate) fn check() -> Outcome {
    let mut found = 0;
    for package in published()? {
        let texts = read(&package.folder().join("src"))?;
        let knots = KNOTS.iter().filter(|(name, _)| *name == package.name());
        let knots: Vec<&str> = knots.map(|(_, module)| *module).collect();
        for module in circle(imports(&texts, &knots)) {
            found += 1;
            println!("    {}: {} is in a circle", package.name(), module.join("::"));
        }
    }
    match found {
        0 => Ok(()),
        _ => Err(format!(
            "{found} files import each other; move what both sides need to a file below them"
        )),
    }
}

/// Reads the files of a crate.
fn read(source: &Path) -> Result<BTreeMap<Module, String>, String> {
    let failed = |path: &Path, error| format!("{}: {error}", path.display());
    let mut texts = BTreeMap::new();
    for path in files(source).map_err(|error| failed(source, error))? {
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let inside = path.strip_prefix(source).unwrap_or(&path).with_extension("");
        let mut module: Module =
            inside.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        module.pop_if(|name| matches!(name.as_str(), "mod" | "lib" | "main"));
        texts.insert(module, fs::read_to_string(&path).map_err(|error| failed(&path, error))?);
    }
    Ok(texts)
}

/// Returns what each module names, but for those that it is in and those in it where they are few, or one of the `knots`.
fn imports(texts: &BTreeMap<Module, String>, knots: &[&str]) -> Imports {
    let lines = |outer: &Module| {
        let parts = texts.iter().filter(|(module, _)| module.starts_with(outer));
        parts.map(|(_, text)| text.lines().count()).sum::<usize>()
    };
    let is_one = |outer: &Module| {
        outer.is_empty() || knots.contains(&outer.join("::").as_str()) || lines(outer) <= FEW
    };
    let of = |(module, text): (&Module, &String)| {
        // The rest of the file are tests: `super` is the file itself there.
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let code = code.collect::<Vec<_>>().join("\n");
        let parts = texts.keys().filter(|part| !module.is_empty() && above(part) == *module);
        let parts = parts.filter(|part| names(&code, part)).cloned();
        let named = paths(&code, module).into_iter().map(|path| owner(path, texts));
        let apart = |other: &Module| match (other.starts_with(module), module.starts_with(other)) {
            (true, true) => false,
            (true, false) => !is_one(module),
            (false, true) => !is_one(other),
            (false, false) => true,
        };
        (module.clone(), named.chain(parts).filter(apart).collect())
    };
    texts.iter().map(of).collect()
}

/// Returns whether a file names something in one of its parts, as seen from there.
fn names(code: &str, part: &Module) -> bool {
    let Some(name) = part.last().map(|name| format!("{name}::")) else { return false };
    code.match_indices(&name).any(|(at, _)| is_whole(code, at))
}

/// Returns whether a path begins here.
fn is_whole(code: &str, at: usize) -> bool {
    !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')
}

/// Returns the paths behind each `crate::` and `super::`, from the root of the crate.
fn paths(code: &str, module: &[String]) -> Vec<Module> {
    let mut found = Vec::new();
    for (at, word) in code.match_indices("crate::").chain(code.match_indices("super::")) {
        if is_whole(code, at) {
            let start = if word == "crate::" { Module::new() } else { above(module) };
            follow(&code[at + word.len()..], start, &mut found);
        }
    }
    found
}

/// Returns the module that another one is in.
fn above(module: &[String]) -> Module {
    module.split_last().map_or_else(Module::new, |(_, above)| above.to_vec())
}

/// Adds the paths that begin with `start` and go on as the text says: one, or a list in braces. Returns the text behind them.
fn follow<'t>(text: &'t str, mut start: Module, found: &mut Vec<Module>) -> &'t str {
    let text = text.trim_start();
    if let Some(mut list) = text.strip_prefix('{') {
        while !list.is_empty() && !list.starts_with('}') {
            let rest = follow(list, start.clone(), found).trim_start();
            let end = rest.find([',', '}']).unwrap_or(rest.len());
            list = rest[end..].trim_start_matches(',').trim_start();
        }
        return list.get(1..).unwrap_or_default();
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    match &text[..end] {
        "super" => start = above(&start),
        "self" => {}
        name => start.push(name.to_owned()),
    }
    match text[end..].strip_prefix("::") {
        Some(rest) => follow(rest, start, found),
        None => {
            found.push(start);
            &text[end..]
        }
    }
}

/// Returns the module that a path's name is in.
fn owner(mut path: Module, texts: &BTreeMap<Module, String>) -> Module {
    while !path.is_empty() && !texts.contains_key(&path) {
        path.pop();
    }
    path
}

/// Returns the modules that are in circles, or between two.
fn circle(mut imports: Imports) -> Vec<Module> {
    loop {
        let before = imports.len();
        let named: BTreeSet<Module> = imports.values().flatten().cloned().collect();
        let left: BTreeSet<Module> = imports.keys().cloned().collect();
        imports.retain(|module, others| named.contains(module) && !others.is_disjoint(&left));
        if imports.len() == before {
            return imports.into_keys().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FEW, Module, circle, imports};
    use std::collections::BTreeMap;

    fn in_circles(files: &[(&str, &str)]) -> Vec<String> {
        let module = |path: &str| path.split("::").map(str::to_owned).collect::<Module>();
        let texts: BTreeMap<_, _> =
            files.iter().map(|(path, text)| (module(path), (*text).to_owned())).collect();
        circle(imports(&texts, &[])).iter().map(|module| module.join("::")).collect()
    }

    #[test]
    fn files_that_import_one_way_pass() {
        let files = [
            ("a", "use crate::{b::B, c::{self, d::D}};\n// crate::a would be a circle in b"),
            ("b", "/// See [`crate::a::A`].\nuse super::c::C;"),
            ("c", "use d::D;\nuse std::supercrate::a;"),
            ("c::d", "use crate::c::C;\nuse super::super::b::B;"),
        ];
        assert_eq!(in_circles(&files), [""; 0]);
    }

    #[test]
    fn circles_are_found_through_lists_and_parents() {
        let files = [
            ("a", "use crate::{b::{self, B}, x};"),
            ("b", "fn f(_: super::c::d::D) {}"),
            ("c", ""),
            ("c::d", "use super::super::a::A;"),
            ("x", "use crate::c::C;"),
        ];
        assert_eq!(in_circles(&files), ["a", "b", "c::d"]);
    }

    #[test]
    fn parts_of_a_large_module_import_one_way() {
        let long = "\n".repeat(FEW);
        let names_its_parts = format!("mod low;\nmod high;\npub use low::Low;\n{long}");
        let files = |high: &'static str| {
            [
                ("a", names_its_parts.as_str()),
                ("a::low", "#[cfg(test)]\nmod tests {\nuse super::*;\n}"),
                ("a::high", high),
            ]
        };
        assert_eq!(in_circles(&files("use super::low::Low;")), [""; 0]);
        assert_eq!(in_circles(&files("use super::Low;")), [""; 0], "nothing there names it");
        let both = names_its_parts.replace("low::Low", "{low::Low, high::High}");
        let mut knot = files("use super::Low;");
        knot[0].1 = &both;
        assert_eq!(in_circles(&knot), ["a", "a::high"]);
        assert_eq!(in_circles(&[("a", "use b::B;"), ("a::b", "use super::A;")]), [""; 0], "few");
    }
}
