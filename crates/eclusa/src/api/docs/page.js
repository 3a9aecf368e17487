// Shows /openapi.json: every call with its parameters, body and responses.
"use strict";

const make = (tag, text, ...children) => {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  element.append(...children);
  return element;
};

const table = (heads, rows) => {
  const element = make("table");
  element.append(make("tr", "", ...heads.map((head) => make("th", head))));
  for (const row of rows) element.append(make("tr", "", ...row.map((cell) => make("td", cell))));
  return element;
};

// A schema with its references resolved; a recursive one is only named.
const resolve = (api, schema, seen = []) => {
  if (!schema || typeof schema !== "object") return schema;
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    return seen.includes(name) ? name : resolve(api, api.components.schemas[name], [...seen, name]);
  }
  if (schema.oneOf || schema.anyOf) return (schema.oneOf || schema.anyOf).map((one) => resolve(api, one, seen));
  if (schema.type === "array") return [resolve(api, schema.items, seen)];
  if (schema.properties) {
    const fields = Object.entries(schema.properties).map(([name, field]) => {
      const optional = (schema.required || []).includes(name) ? "" : "?";
      return [name + optional, resolve(api, field, seen)];
    });
    return Object.fromEntries(fields);
  }
  const type = [schema.type].flat().filter(Boolean).join(" or ") || "any";
  return schema.description ? `${type}: ${schema.description}` : type;
};

const shape = (api, content) => {
  const schema = Object.values(content || {})[0]?.schema;
  return schema ? make("pre", JSON.stringify(resolve(api, schema), null, 2)) : "";
};

const call = (api, method, path, operation) => {
  const summary = make("summary", "", make("span", method), make("code", path), ` ${operation.summary || ""}`);
  summary.firstChild.className = "method";
  const details = make("details", "", summary);
  if (operation.description) details.append(make("p", operation.description));
  if (operation.parameters?.length) {
    const rows = operation.parameters.map((one) => [one.name, one.in, one.description || ""]);
    details.append(table(["parameter", "in", ""], rows));
  }
  if (operation.requestBody) details.append(make("h4", "Body"), shape(api, operation.requestBody.content));
  for (const [status, response] of Object.entries(operation.responses || {})) {
    const answer = response.$ref ? api.components.responses[response.$ref.split("/").pop()] : response;
    details.append(make("h4", `${status} ${answer.description || ""}`), shape(api, answer.content));
  }
  return details;
};

const show = (api) => {
  const byTag = {};
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const tag = operation.tags?.[0] || "other";
      (byTag[tag] ||= []).push(call(api, method, path, operation));
    }
  }
  const [nav, main] = [document.getElementById("tags"), document.getElementById("calls")];
  main.replaceChildren();
  for (const [tag, calls] of Object.entries(byTag)) {
    const heading = make("h2", tag);
    heading.id = tag.replace(/ /g, "-");
    const link = make("a", tag);
    link.href = `#${heading.id}`;
    nav.append(link);
    main.append(heading, ...calls);
  }
};

fetch("/openapi.json")
  .then((answer) => answer.json())
  .then(show)
  .catch((error) => document.getElementById("calls").replaceChildren(make("p", `Could not load: ${error}`)));
