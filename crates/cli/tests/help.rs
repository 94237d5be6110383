//! The command line as users see it: a change of it is seen in review, and the manual keeps up.

use clap::Command;
use expect_test::expect_file;

fn help(command: &Command, path: &str, text: &mut String) {
    let mut command = command.clone().bin_name(path).term_width(100);
    text.push_str(&format!("$ {path} --help\n{}\n", command.render_help()));
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        help(sub, &format!("{path} {}", sub.get_name()), text);
    }
}

#[test]
fn help_is_as_reviewed() {
    let mut text = String::new();
    let mut root = cofferdam_cli::command();
    root.build();
    help(&root, "cofferdam", &mut text);
    expect_file!["help.txt"].assert_eq(&text);
}

#[test]
fn the_manual_has_a_section_for_every_verb_and_names_every_flag() {
    let manual = include_str!("../../../docs/cli.md");
    for verb in cofferdam_cli::COMMANDS {
        let heading = format!("\n## `cofferdam {}`", verb.name);
        let Some((_, section)) = manual.split_once(&heading) else {
            panic!("docs/cli.md has no section `{heading}`");
        };
        let section = section.split("\n## ").next().unwrap_or_default();
        let command = verb.command();
        let mut all = vec![&command];
        all.extend(command.get_subcommands());
        for argument in all.iter().flat_map(|command| command.get_arguments()) {
            let Some(flag) = argument.get_long().filter(|flag| *flag != "help") else { continue };
            assert!(section.contains(&format!("--{flag}")), "docs/cli.md: {} --{flag}", verb.name);
        }
    }
}
