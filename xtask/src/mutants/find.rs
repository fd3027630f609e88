//! Places where a source can be changed by one operator, and the source with all changes behind a switch.
use core::ops::Range;
use proc_macro2::Span;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, ExprLit, Lit, ReturnType, Signature, Stmt};

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mutant {
    /// Its number in this run, from 1 on; what the switch is set to.
    pub(crate) number: usize,
    /// The file, below the root.
    pub(crate) file: String,
    /// Bytes of the file that it changes: a line may have several changes of one kind.
    pub(crate) range: Range<usize>,
    /// The line, from 1 on.
    pub(crate) line: usize,
    /// The line's text.
    pub(crate) text: String,
    /// Description of the change, for example `< to <=`.
    pub(crate) change: String,
}

/// A place that can be changed in some ways.
struct Site {
    range: Range<usize>,
    kind: Kind,
    /// Name of each way, and its text.
    ways: Vec<(String, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Another expression instead.
    Expression,
    /// A statement that is left out.
    Statement,
    /// A body that returns at its start.
    Body,
}

struct Finder<'a> {
    source: &'a str,
    sites: Vec<Site>,
}

/// A source with all its changes, and where each of them is in it.
pub(crate) struct Changed {
    pub(crate) text: String,
    pub(crate) mutants: Vec<Mutant>,
    /// Places of the ways of a number in the text.
    pub(crate) places: Vec<(Range<usize>, usize)>,
}

/// Finds every change of a source but those in `skipped`, and puts all behind the switch; numbers go on from `first`.
///
/// # Errors
///
/// Fails when the source is no Rust.
pub(crate) fn change(
    file: &str,
    source: &str,
    first: usize,
    skipped: impl Fn(&Mutant) -> bool,
) -> Result<Changed, String> {
    let parsed = syn::parse_file(source).map_err(|error| format!("{file}: {error}"))?;
    let mut finder = Finder { source, sites: Vec::new() };
    finder.visit_file(&parsed);
    let mut sites = finder.sites;
    // A body's start comes first, and an outer place before those inside it.
    let rank =
        |site: &Site| (site.range.start, site.kind != Kind::Body, usize::MAX - site.range.end);
    sites.sort_by_key(rank);
    let mut changed = Changed { text: String::new(), mutants: Vec::new(), places: Vec::new() };
    let mut writer = Writer { file, source, next: first, skipped: &skipped, changed: &mut changed };
    writer.copy(0..source.len(), &sites);
    Ok(changed)
}

/// Writes the changed source.
struct Writer<'a> {
    file: &'a str,
    source: &'a str,
    next: usize,
    skipped: &'a dyn Fn(&Mutant) -> bool,
    changed: &'a mut Changed,
}

impl Writer<'_> {
    /// Copies a range, with the sites in it.
    fn copy(&mut self, range: Range<usize>, sites: &[Site]) {
        let (source, mut at, mut rest) = (self.source, range.start, sites);
        while let Some((site, others)) = rest.split_first() {
            let count = others.iter().take_while(|inner| inner.range.end <= site.range.end).count();
            let (inner, next) = others.split_at(count);
            self.put(&source[at..site.range.start]);
            self.site(site, inner);
            (at, rest) = (site.range.end, next);
        }
        self.put(&source[at..range.end]);
    }

    fn site(&mut self, site: &Site, inner: &[Site]) {
        let ways: Vec<_> = site.ways.iter().filter_map(|way| self.number(site, way)).collect();
        let Some((first, _)) = ways.first() else { return self.copy(site.range.clone(), inner) };
        match site.kind {
            Kind::Expression => {
                self.put(&format!("(match crate::mutant({first}) {{ "));
                ways.iter().for_each(|(n, text)| self.way(*n, &format!("{n} => {{ {text} }} ")));
                self.put("_ => ");
                self.copy(site.range.clone(), inner);
                self.put(" })");
            }
            Kind::Statement => {
                self.way(*first, &format!("if crate::mutant({first}) != {first} {{ "));
                self.copy(site.range.clone(), inner);
                self.put(" }");
            }
            Kind::Body => {
                for (n, text) in &ways {
                    self.way(*n, &format!(" if crate::mutant({n}) == {n} {{ return {text}; }} "));
                }
                self.copy(site.range.clone(), inner);
            }
        }
    }

    fn number(
        &mut self,
        site: &Site,
        (change, text): &(String, String),
    ) -> Option<(usize, String)> {
        let line = self.source[..site.range.start].matches('\n').count();
        let shown = self.source.lines().nth(line).unwrap_or("").trim().to_owned();
        let (file, range, change) = (self.file.to_owned(), site.range.clone(), change.clone());
        let (number, line) = (self.next, line + 1);
        let mutant = Mutant { number, file, range, line, text: shown, change };
        if (self.skipped)(&mutant) {
            return None;
        }
        self.next += 1;
        self.changed.mutants.push(mutant);
        Some((self.next - 1, text.clone()))
    }

    fn put(&mut self, text: &str) {
        self.changed.text.push_str(text);
    }

    fn way(&mut self, number: usize, text: &str) {
        let start = self.changed.text.len();
        self.put(text);
        self.changed.places.push((start..self.changed.text.len(), number));
    }
}

impl Finder<'_> {
    fn text(&self, span: Span) -> &str {
        &self.source[span.byte_range()]
    }

    fn add(&mut self, span: Span, kind: Kind, ways: Vec<(String, String)>) {
        if !ways.is_empty() {
            self.sites.push(Site { range: span.byte_range(), kind, ways });
        }
    }

    /// The body of a function that can be switched; what a compiler runs cannot be.
    fn body(&mut self, about: &Signature, block: &Block) {
        if about.constness.is_some() {
            return;
        }
        let name = about.ident.to_string();
        let values: &[&str] = match &about.output {
            ReturnType::Default => &["()"],
            ReturnType::Type(_, of) => match self.text(of.span()) {
                "bool" => &["true", "false"],
                "u64" | "u32" | "u16" | "u8" | "usize" => &["0", "1"],
                of if of.starts_with("Option<") => &["None"],
                of if of.starts_with("Result<()>") || of.starts_with("Result<(), ") => &["Ok(())"],
                of if of.starts_with("Vec<") => &["Vec::new()"],
                _ => &[],
            },
        };
        let ways = |value: &&str| (format!("{name} returns {value}"), (*value).to_owned());
        if let Some(first) = block.stmts.first() {
            let start = first.span().byte_range().start;
            let range = start..start;
            let ways: Vec<_> = values.iter().map(ways).collect();
            if !ways.is_empty() {
                self.sites.push(Site { range, kind: Kind::Body, ways });
            }
        }
        self.visit_block(block);
    }

    fn binary(&mut self, node: &syn::ExprBinary) {
        let others: &[&str] = match node.op {
            BinOp::Lt(_) => &["<="],
            BinOp::Le(_) => &["<"],
            BinOp::Gt(_) => &[">="],
            BinOp::Ge(_) => &[">"],
            BinOp::Eq(_) => &["!="],
            BinOp::Ne(_) => &["=="],
            BinOp::Add(_) => &["-"],
            BinOp::Sub(_) => &["+"],
            BinOp::AddAssign(_) => &["-="],
            BinOp::SubAssign(_) => &["+="],
            BinOp::And(_) if !has_let(&node.left) && !has_let(&node.right) => &["||"],
            BinOp::Or(_) => &["&&"],
            _ => &[],
        };
        let (left, right) = (self.text(node.left.span()), self.text(node.right.span()));
        let sign = self.source
            [node.left.span().byte_range().end..node.right.span().byte_range().start]
            .trim();
        let way = |other: &&str| (format!("{sign} to {other}"), format!("{left} {other} {right}"));
        let ways = others.iter().map(way).collect();
        self.add(node.span(), Kind::Expression, ways);
    }

    fn condition(&mut self, condition: &Expr) {
        let is_simple = matches!(condition, Expr::MethodCall(_) | Expr::Call(_) | Expr::Path(_));
        if is_simple {
            let text = format!("!({})", self.text(condition.span()));
            self.add(condition.span(), Kind::Expression, vec![("negated".into(), text)]);
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        if !is_for_tests(&node.attrs) {
            self.body(&node.sig, &node.block);
        }
    }
    fn visit_impl_item_fn(&mut self, node: &'ast syn::ImplItemFn) {
        if !is_for_tests(&node.attrs) {
            self.body(&node.sig, &node.block);
        }
    }
    fn visit_item_mod(&mut self, node: &'ast syn::ItemMod) {
        if !is_for_tests(&node.attrs) {
            visit::visit_item_mod(self, node);
        }
    }
    fn visit_expr_binary(&mut self, node: &'ast syn::ExprBinary) {
        self.binary(node);
        visit::visit_expr_binary(self, node);
    }
    fn visit_expr_if(&mut self, node: &'ast syn::ExprIf) {
        self.condition(&node.cond);
        visit::visit_expr_if(self, node);
    }
    fn visit_expr_unary(&mut self, node: &'ast syn::ExprUnary) {
        if matches!(node.op, syn::UnOp::Not(_)) {
            let text = self.text(node.expr.span()).to_owned();
            self.add(node.span(), Kind::Expression, vec![("without !".into(), text)]);
        }
        visit::visit_expr_unary(self, node);
    }
    fn visit_expr_method_call(&mut self, node: &'ast syn::ExprMethodCall) {
        let name = node.method.to_string();
        let other = match name.as_str() {
            "min" => Some("max"),
            "max" => Some("min"),
            _ => None,
        };
        if let (Some(other), Some(argument), 1) = (other, node.args.first(), node.args.len()) {
            let (left, right) = (self.text(node.receiver.span()), self.text(argument.span()));
            let way = (format!("{name} to {other}"), format!("{left}.{other}({right})"));
            self.add(node.span(), Kind::Expression, vec![way]);
        }
        visit::visit_expr_method_call(self, node);
    }
    fn visit_expr_lit(&mut self, node: &'ast ExprLit) {
        if let Lit::Int(number) = &node.lit
            && let Ok(value) = number.base10_parse::<u64>()
            && value < 1 << 20
        {
            let way = format!("{}{}", value + 1, number.suffix());
            self.add(node.span(), Kind::Expression, vec![(format!("{value} to {way}"), way)]);
        }
    }
    fn visit_stmt(&mut self, node: &'ast Stmt) {
        if let Stmt::Expr(call @ (Expr::Call(_) | Expr::MethodCall(_)), Some(_)) = node {
            if is_for_tests(attributes(call)) {
                return;
            }
            if !self.text(call.span()).starts_with("drop(") {
                self.add(node.span(), Kind::Statement, vec![("left out".into(), String::new())]);
            }
        }
        visit::visit_stmt(self, node);
    }
    // Code that a compiler runs, patterns and types cannot be switched.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_variant(&mut self, _: &'ast syn::Variant) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_expr_repeat(&mut self, node: &'ast syn::ExprRepeat) {
        self.visit_expr(&node.expr);
    }
}

/// Lists the modules in files of their own that are built for tests only.
///
/// # Errors
///
/// Fails when the source is no Rust.
pub(crate) fn modules_for_tests(file: &str, source: &str) -> Result<Vec<String>, String> {
    let parsed = syn::parse_file(source).map_err(|error| format!("{file}: {error}"))?;
    let is_test = |one: &syn::Attribute| {
        one.path().is_ident("cfg")
            && one.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    };
    let name = |item: &syn::Item| match item {
        syn::Item::Mod(it) if it.content.is_none() && it.attrs.iter().any(is_test) => {
            Some(it.ident.to_string())
        }
        _ => None,
    };
    Ok(parsed.items.iter().filter_map(name).collect())
}

/// Returns true if something is built for tests only, or otherwise.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    let is = |one: &syn::Attribute| one.path().is_ident("cfg") || one.path().is_ident("test");
    attributes.iter().any(is)
}

/// Returns the attributes before a call.
fn attributes(call: &Expr) -> &[syn::Attribute] {
    match call {
        Expr::Call(call) => &call.attrs,
        // The attribute belongs to what the method is called on.
        Expr::MethodCall(call) if call.attrs.is_empty() => attributes(&call.receiver),
        Expr::MethodCall(call) => &call.attrs,
        Expr::Path(path) => &path.attrs,
        _ => &[],
    }
}

/// Returns true if an expression binds something for what comes after it.
fn has_let(of: &Expr) -> bool {
    match of {
        Expr::Let(_) => true,
        Expr::Binary(both) => has_let(&both.left) || has_let(&both.right),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(source: &str) -> Changed {
        change("a.rs", source, 1, |_| false).expect("it is Rust")
    }

    fn changes(source: &str) -> Vec<String> {
        changed(source).mutants.into_iter().map(|mutant| mutant.change).collect()
    }

    #[test]
    fn every_operator_finds_its_place() {
        assert_eq!(changes("fn f() { g(1); }"), ["f returns ()", "left out", "1 to 2"]);
        assert_eq!(
            changes("fn f(a: u8) -> bool { !(a < 3) }")[2..],
            ["without !", "< to <=", "3 to 4"]
        );
        assert_eq!(
            changes("fn f(a: S) -> S { if a.is() { a + b } else { a.min(b) } }"),
            ["negated", "+ to -", "min to max"]
        );
        assert_eq!(changes("fn f(a: S) -> S { if let A = b && c || d { e } }"), ["|| to &&"]);
        let three = changed("fn f(a: S) -> S { a + b + c }").mutants;
        assert_ne!(three[0].range, three[1].range, "two changes of one kind in one line");
    }

    #[test]
    fn what_a_compiler_runs_and_what_tests_need_is_left_alone() {
        for source in [
            "const A: u8 = 1 + 2;",
            "const fn f() -> u8 { 1 + 2 }",
            "#[cfg(test)] mod tests { fn f() { g(1); } }",
            "fn f() -> S { #[cfg(test)] a::g(1); #[cfg(test)] a.g(1); b }",
            "fn f() -> S { match a { 1 => b, _ => [c; 4] } }",
        ] {
            assert_eq!(changes(source), [""; 0], "{source}");
        }
    }

    #[test]
    fn files_that_are_built_for_tests_only_are_known() {
        let source = "mod a; #[cfg(test)] mod b; #[cfg(unix)] mod c; #[cfg(test)] mod d { mod e; }";
        assert_eq!(modules_for_tests("a.rs", source), Ok(vec!["b".to_owned()]));
    }

    #[test]
    fn changes_are_behind_the_switch_and_the_rest_is_as_it_was() {
        let source = "fn f(a: S) -> S { a + (b + 1) }";
        let Changed { text, places, .. } = changed(source);
        let all = "fn f(a: S) -> S { (match crate::mutant(1) { 1 => { a - (b + 1) } _ => a + ((match crate::mutant(2) \
            { 2 => { b - 1 } _ => b + (match crate::mutant(3) { 3 => { 2 } _ => 1 }) })) }) }";
        assert_eq!(text, all);
        assert_eq!(&text[places[1].0.clone()], "2 => { b - 1 } ");
        let kept = change("a.rs", source, 1, |_| true).expect("it is Rust");
        assert_eq!(kept.text, source);
    }
}
