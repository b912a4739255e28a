"use strict";
// Lays out /openapi.json for reading, without anything from another server.

function element(tag, content, ...children) {
  const made = document.createElement(tag);
  if (content) made.textContent = content;
  made.append(...children);
  return made;
}

// Between backticks stands code, as in Markdown.
function prose(tag, string) {
  return element(tag, "", ...string.split("`").map((part, index) => (index % 2 ? element("code", part) : part)));
}

function resolved(schema, components) {
  if (Array.isArray(schema)) return schema.map((part) => resolved(part, components));
  if (schema === null || typeof schema !== "object") return schema;
  if (schema.$ref) return resolved(components[schema.$ref.split("/").pop()], components);
  return Object.fromEntries(Object.entries(schema).map(([key, part]) => [key, resolved(part, components)]));
}

function bodies(content, components) {
  return Object.entries(content ?? {}).map(([type, { schema }]) =>
    element("pre", `${type}\n${JSON.stringify(resolved(schema, components), null, 2)}`));
}

function operation(path, method, it, components) {
  const article = element("article", "", element("h2", `${method.toUpperCase()} ${path}: ${it.summary}`));
  if (it.description) article.append(prose("p", it.description));
  for (const parameter of it.parameters ?? []) {
    article.append(prose("p", `${parameter.in} ${parameter.name}: ${parameter.description}`));
  }
  if (it.requestBody) {
    article.append(element("details", "", element("summary", "Request body"),
      ...bodies(it.requestBody.content, components)));
  }
  for (const [status, response] of Object.entries(it.responses)) {
    article.append(element("details", "", prose("summary", `${status}: ${response.description}`),
      ...bodies(response.content, components)));
  }
  return article;
}

async function load() {
  const document_ = await (await fetch("/openapi.json")).json();
  const { description, version } = document_.info;
  document.getElementById("about").append(prose("p", `${description} Version ${version}.`));
  const list = document.getElementById("operations");
  for (const [path, methods] of Object.entries(document_.paths)) {
    for (const [method, it] of Object.entries(methods)) {
      list.append(operation(path, method, it, document_.components.schemas));
    }
  }
}

load().catch((error) => {
  const problem = document.getElementById("problem");
  problem.textContent = `The description could not be loaded: ${error.message}`;
  problem.hidden = false;
});
