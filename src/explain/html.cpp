/// The page: a template with its style, its script and the record inside it.
#include "explain/trace.h"

namespace hyalite {

// The files of these names, embedded by cmake/embed.cmake.
extern const char* const page_html;
extern const char* const page_css;
extern const char* const page_tools_js;
extern const char* const page_graph_js;
extern const char* const page_plan_js;
extern const char* const page_js;

std::string to_html(const TraceRecord& t) {
  std::string json;
  // Inside JSON "<" stands only in strings; escaped there, nothing in a record can end the script element.
  for (const char c : to_json(t)) json += c == '<' ? "\\u003c" : std::string(1, c);
  std::string page = page_html;
  // The marks stand in this order; from the last to the first, so that none is looked for in what was put in.
  const std::string script = std::string(page_tools_js) + page_graph_js + page_plan_js + page_js;
  const std::pair<std::string_view, std::string_view> parts[] = {
      {"__SCRIPT__", script}, {"__TRACE__", json}, {"__STYLE__", page_css}};
  for (const auto& [mark, text] : parts) page.replace(page.find(mark), mark.size(), text);
  return page;
}

}  // namespace hyalite
